"""kill -9 at any moment: every acknowledged commit is there, whole, and nothing after the next one."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.failures import StoreRefused
from controller.store.store import Store
from tests.controller.store.samples import Model, history

ROOT = Path(__file__).parents[3]
STRACE = ("strace", "-f", "--seccomp-bpf", "-o", "/dev/null")

strace = pytest.mark.skipif(
    shutil.which("strace") is None or subprocess.run([*STRACE, "true"], capture_output=True).returncode != 0,
    reason="strace is not installed, or may not trace here",
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/corral.db"


def writer(url: str, seed: int, *under: str) -> subprocess.Popen[str]:
    """A process that commits; it ends by itself when nobody listens any more."""
    words = [*under, sys.executable, "-m", "tests.controller.store.writer", url, str(seed)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], commits: int) -> list[str]:
    """Kill it as soon as so many commits were acknowledged; all that it said."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(1 + commits)]
    process.send_signal(signal.SIGKILL)
    rest, complaints = process.communicate()
    assert complaints == ""
    return [line.strip() for line in said] + rest.splitlines()


def check(url: str, seed: int, said: list[str]) -> None:
    """The store holds the acknowledged commits, and perhaps the one that was under way."""
    acknowledged = sum(line.isdigit() for line in said)
    with closing(Store.open(url, keep=100_000)) as store:
        model, turns = Model(), history(seed)
        for turn in itertools.islice(turns, acknowledged):
            model.apply(turn)
        if store.load().last_seq != len(model.entries):
            model.apply(next(turns))
        model.check(store)
        assert store.verify().good


@pytest.mark.parametrize("seed", range(20))
def test_nothing_acknowledged_is_lost(url: str, seed: int) -> None:
    check(url, seed, kill_after(writer(url, seed), random.Random(seed).randrange(200)))


@strace
@pytest.mark.parametrize("write", [3, 40, 76, 77, 78, 500, 2_200, 2_400])
def test_nothing_acknowledged_is_lost_at_the_nth_write(url: str, write: int) -> None:
    """The first ones make the tables, the last ones move the write-ahead log into the file."""
    kill = f"inject=pwrite64:signal=SIGKILL:when={write}"
    said, _ = writer(url, 5, *STRACE, "-e", kill).communicate()
    check(url, 5, said.splitlines())


@strace
def test_nothing_is_acknowledged_after_an_fsync_that_failed(url: str, tmp_path: Path) -> None:
    """What the disk holds then is unknown, so even an fsync that works again proves nothing."""
    fail = "inject=fdatasync:error=EIO:when=30"
    said, _ = writer(url, 6, *STRACE, "-e", fail).communicate()
    good = list(itertools.takewhile(lambda line: line == "open" or line.isdigit(), said.splitlines()))
    bad = said.splitlines()[len(good) :]
    assert len(good) > 10
    assert bad[0].startswith(f"StoreBroken: {tmp_path}/corral.db failed: disk I/O error")
    assert len(set(bad)) == 1
    check(url, 6, good)


def test_a_second_controller_is_refused_until_the_first_is_dead(url: str) -> None:
    first = writer(url, 1)
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    owner = rf"Another controller \(pid {first.pid} on \S+, since 20.*\) owns /"
    with pytest.raises(StoreRefused, match=owner) as refused:
        Store.open(url)
    assert "Stop it first" in refused.value.hint
    check(url, 1, kill_after(first, 3))
