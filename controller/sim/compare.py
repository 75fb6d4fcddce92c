"""Several runs at once, each in a process of its own, as many as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from controller.sim.refusal import SimulationRefused
from controller.sim.run import Outcome, Task, run

# A fresh interpreter, whatever this process holds open; the same on every system.
_SPAWN = multiprocessing.get_context("spawn")


class RunFailed(SimulationRefused):
    """A run came to nothing: which one, and why."""


def compare(
    tasks: Sequence[Task], progress: Callable[[int], None] | None = None, cores: int | None = None
) -> list[Outcome]:
    """All outcomes in the order of the tasks. `progress` is told how many jobs have ended in all."""
    waiting = list(enumerate(tasks))[::-1]
    running: dict[Connection, tuple[int, SpawnProcess]] = {}
    outcomes: dict[int, Outcome] = {}
    passed = [0] * len(tasks)
    try:
        while waiting or running:
            while waiting and len(running) < (cores or os.cpu_count() or 1):
                place, task = waiting.pop()
                running.update([_start(place, task)])
            for line in wait(list(running)):
                assert isinstance(line, Connection)
                place, process = running[line]
                told = _receive(line, tasks[place], process)
                if isinstance(told, int):
                    passed[place] = told
                    if progress is not None:
                        progress(sum(passed))
                else:
                    outcomes[place] = told
                    del running[line]
                    process.join()
    finally:
        for _, process in running.values():
            process.kill()
            process.join()
    return [outcomes[place] for place in range(len(tasks))]


def _start(place: int, task: Task) -> tuple[Connection, tuple[int, SpawnProcess]]:
    ours, theirs = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_child, args=(theirs, task), daemon=True)
    process.start()
    theirs.close()  # so that the line ends when the child does
    return ours, (place, process)


def _receive(line: Connection, task: Task, process: SpawnProcess) -> Outcome | int:
    try:
        told = line.recv()
    except EOFError:
        process.join()
        raise RunFailed(f"the run of {task.policy.name} ended {_how(process.exitcode)}") from None
    if isinstance(told, str):
        raise RunFailed(f"the run of {task.policy.name} failed: {told}")
    assert isinstance(told, Outcome | int)
    return told


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {-code} ({signal.strsignal(-code)}); was there memory enough?"
    return f"with code {code}"


def _child(line: Connection, task: Task) -> None:
    # Ctrl-C goes to all of us; it is for the parent, which ends its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told: Any
    try:
        told = run(task, line.send)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    with suppress(BrokenPipeError):  # nobody waits for it any more
        line.send(told)
