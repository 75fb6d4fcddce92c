"""kill -9 at any moment: every acknowledged commit is complete, and the store has at most one commit more."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.store.errors import StoreRefused
from controller.store.store import Store
from tests.controller.store.scratch import scratch
from tests.controller.store.writer import check, kill_after, start

STRACE = ("strace", "-f", "--seccomp-bpf", "-o", "/dev/null")

strace = pytest.mark.skipif(
    shutil.which("strace") is None or subprocess.run([*STRACE, "true"], capture_output=True).returncode != 0,
    reason="strace is not installed, or may not trace here",
)


@pytest.fixture
def url() -> Iterator[str]:
    """A directory in memory: written data survives a killed process. Another test checks the fsync."""
    with scratch() as directory:
        yield f"sqlite:///{directory}/corral.db"


@pytest.mark.parametrize("seed", range(10))
def test_nothing_acknowledged_is_lost(url: str, seed: int) -> None:
    check(url, seed, kill_after(start(url, seed), random.Random(seed).randrange(200)))


@strace
@pytest.mark.parametrize("write", [3, 40, 72, 73, 74, 500, 2_200, 2_400])
def test_nothing_acknowledged_is_lost_at_the_nth_write(url: str, write: int) -> None:
    """The first writes make the tables, the last ones move the write-ahead log into the file."""
    kill = f"inject=pwrite64:signal=SIGKILL:when={write}"
    output, _ = start(url, 5, *STRACE, "-e", kill).communicate()
    check(url, 5, output.splitlines())


@strace
def test_every_acknowledgement_follows_its_own_fsync(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    tracer = ("strace", "-f", "-o", str(trace), "-e", "trace=fdatasync,write")
    start(url, 7, *tracer, commits=30).communicate()
    calls = re.findall(r'(fdatasync\(\d+\) += 0|write\(1, "\d)', trace.read_text())
    acknowledged = [place for place, call in enumerate(calls) if call.startswith("write")]
    assert len(acknowledged) == 30
    assert all(calls[place - 1].startswith("fdatasync") for place in acknowledged)


@strace
def test_nothing_is_acknowledged_after_a_failed_fsync(url: str) -> None:
    """The content of the disk is unknown then, so a later fsync that works proves nothing."""
    fail = "inject=fdatasync:error=EIO:when=30"
    output, _ = start(url, 6, *STRACE, "-e", fail).communicate()
    *good, first, second, third = output.splitlines()
    assert len(good) > 10
    assert first.startswith(f"StoreBroken: {url.removeprefix('sqlite:///')} failed: disk I/O error")
    assert first == second == third
    check(url, 6, good)


def test_a_second_controller_is_refused_until_the_first_is_dead(url: str) -> None:
    first = start(url, 1)
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    owner = rf"Another controller \(pid {first.pid} on \S+, since 20.*\) owns /"
    with pytest.raises(StoreRefused, match=owner) as refused:
        Store.open(url)
    assert "Stop it first" in refused.value.hint
    check(url, 1, kill_after(first, 3))
