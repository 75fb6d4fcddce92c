"""The output of a job: fetched by a thread, cleaned, shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.limits import PATIENCE_S
from tui.data import log_tail
from tui.data.log_tail import LogTail, clean
from wire.api.problem import Problem
from wire.http.client import Client, Refused, Unreachable


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07so on", "red and so on"),
        (" 10%\r 50%\r100%\r", "100%"),
        ("a\tb", "a       b"),
        ("back\x08space \x9b2J \u202eevil \x1b", "back\ufffdspace \ufffd2J \ufffdevil \ufffd"),
        ("[/bold] [red]", "[/bold] [red]"),
        ("x" * 9000, "x" * 3999 + "…"),
    ],
)
def test_log_line_is_shown_as_a_terminal_would_show_it(line: str, shown: str) -> None:
    assert clean(line) == shown


class Output(Client):
    """Answers with one of several outputs at each connection."""

    def __init__(self, *answers: list[bytes | Exception]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def logs(
        self, job: str | int, *, stream: str = "stdout", follow: bool = False, offset: int = 0
    ) -> Iterator[bytes]:
        self.asked.append((stream, offset))
        for piece in self._answers.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None:
        """Nothing is open."""


class Pager:
    """Puts pieces together as the log pane does."""

    def __init__(self, output: Client) -> None:
        self._woken = threading.Semaphore(0)
        self.tail = LogTail(lambda: output, 7, "stderr", self._woken.release)
        self.lines: list[str] = []
        self.piece: log_tail.Piece | None = None
        self.tail.start()

    def until(self, condition: Callable[[log_tail.Piece], object]) -> None:
        while self.piece is None or not condition(self.piece):
            assert self._woken.acquire(timeout=PATIENCE_S)
            self.piece = self.tail.take()
            if self.piece.fresh:
                self.lines = []
            self.lines += self.piece.lines


def test_log_pieces_become_lines() -> None:
    text = "first\nzweite grüne\nthird"
    pieces: list[bytes | Exception] = [bytes([byte]) for byte in text.encode()]
    output = Output(pieces)
    pager = Pager(output)
    pager.until(lambda piece: piece.over)
    assert pager.lines == ["first", "zweite grüne"]
    assert pager.piece is not None
    assert pager.piece.open_end == "third"
    assert output.asked == [("stderr", -log_tail.TAIL_BYTES)]


def test_log_is_read_again_after_a_lost_connection_without_duplicates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_tail, "RETRY_S", 0.001)
    pager = Pager(
        Output([b"one\n", Unreachable("u", "cut")], [Unreachable("u", "still cut")], [b"one\ntwo\n"])
    )
    pager.until(lambda piece: piece.over)
    assert pager.lines == ["one", "two"]


def test_refused_log_ends_with_its_reason() -> None:
    pager = Pager(Output([Refused(404, Problem("no_output", "job 7 has written nothing yet"))]))
    pager.until(lambda piece: piece.over)
    assert pager.piece is not None
    assert pager.piece.note == "job 7 has written nothing yet"


def test_only_the_end_of_a_long_log_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "KEPT_LINES", 100)
    pager = Pager(Output([b"".join(b"%d\n" % number for number in range(5000))]))
    pager.until(lambda piece: piece.over)
    assert pager.lines == [str(number) for number in range(4900, 5000)]
