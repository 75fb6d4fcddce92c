"""Logs of a job on two nodes."""

from __future__ import annotations

from collections.abc import Callable

from tests.systems import System

TELL = "echo out $CORRAL_NODE $RANK; echo err $NODE_RANK >&2"


def test_gang_logs_of_all_nodes_or_one(build: Callable[..., System]) -> None:
    system = build("gpu01", "gpu02").start()
    shown = system.corral("run", "--nodes", "2", "--", "sh", "-c", TELL)
    assert sorted(shown.splitlines()) == ["gpu01: out gpu01 0", "gpu02: out gpu02 1"]
    assert system.corral("job", "logs", "--stdout", "1") == "gpu01: out gpu01 0\ngpu02: out gpu02 1\n"
    both = "gpu01: out gpu01 0\ngpu01: err 0\ngpu02: out gpu02 1\ngpu02: err 1\n"
    assert system.corral("job", "logs", "1") == both
    assert system.corral("job", "logs", "-f", "--stderr", "1") == "gpu01: err 0\ngpu02: err 1\n"
    assert system.corral("job", "logs", "--stdout", "--node", "gpu02", "1") == "out gpu02 1\n"
