"""Merged output of several nodes: whole lines, each with its node."""

from __future__ import annotations

from io import BytesIO

import pytest

from cli.jobs.merge_node_logs import LONGEST, NodeLineWriter


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"a\n", b"b\n"], b"n1: a\nn1: b\n"),
        ([b"on", b"e\ntw", b"o\n"], b"n1: one\nn1: two\n"),
        ([b"no end"], b"n1: no end\n"),
        ([b"\0\xff\x1b[2J\n\n"], b"n1: \0\xff\x1b[2J\nn1: \n"),
        ([], b""),
    ],
)
def test_every_line_has_its_node(pieces: list[bytes], shown: bytes) -> None:
    sink = BytesIO()
    marked = NodeLineWriter("n1", sink)
    for piece in pieces:
        marked.write(piece)
    marked.finish()
    assert sink.getvalue() == shown


def test_lines_of_two_nodes_are_not_mixed() -> None:
    sink = BytesIO()
    one, other = NodeLineWriter("n1", sink), NodeLineWriter("n2", sink)
    one.write(b"half")
    other.write(b"whole\n")
    one.write(b" more\n")
    assert sink.getvalue() == b"n2: whole\nn1: half more\n"


def test_output_without_newline_is_not_buffered() -> None:
    sink = BytesIO()
    marked = NodeLineWriter("n1", sink)
    for _ in range(100):
        marked.write(b"x" * 4_096)
    assert len(sink.getvalue()) > 99 * 4_096 - LONGEST
