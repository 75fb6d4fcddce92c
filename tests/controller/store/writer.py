"""A process that uses the store like a controller: it commits random entries and acknowledges each commit."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from controller.store.errors import StoreFailure
from controller.store.store import Store
from tests.controller.store.samples import Model, history

ROOT = Path(__file__).parents[3]
ENOUGH = 1_000


def start(url: str, seed: int, *under: str, commits: int = ENOUGH) -> subprocess.Popen[str]:
    """Start a process that commits. It ends when its output is closed."""
    command = [*under, sys.executable, "-m", "tests.controller.store.writer", url, str(seed), str(commits)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], commits: int) -> list[str]:
    """Kill the process after this number of acknowledged commits. Returns all its output lines."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        lines = [process.stdout.readline() for _ in range(1 + commits)]
        process.send_signal(signal.SIGKILL)
        # communicate() would lose what readline() has buffered.
        lines += process.stdout.readlines()
        assert process.stderr.read() == ""
    return [line.strip() for line in lines]


def check(url: str, seed: int, lines: list[str]) -> None:
    """The store holds the acknowledged commits, and perhaps the commit under way."""
    acknowledged = sum(line.isdigit() for line in lines)
    with closing(Store.open(url, keep=100_000)) as store:
        model, turns = Model(), history(seed)
        for turn in itertools.islice(turns, acknowledged):
            model.apply(turn)
        if store.load().last_seq != len(model.entries):
            model.apply(next(turns))
        model.check(store)
        assert store.verify().good


def main(url: str, seed: int, commits: int) -> None:
    """Print `open`, then the number of each durable commit. A failed commit is tried three times."""
    store = Store.open(url)
    print("open", flush=True)
    for number, batch in enumerate(itertools.islice(history(seed), commits), 1):
        for _ in range(3):
            try:
                store.commit(batch)
            except StoreFailure as failure:
                print(f"{type(failure).__name__}: {failure.message}", flush=True)
            else:
                print(number, flush=True)
                break
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
