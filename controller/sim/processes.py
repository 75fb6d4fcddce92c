"""Several pieces of work at once, each in a process of its own, as many as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from controller.sim.refusal import SimulationRefused

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int], None]
Work = Callable[[Task, Progress], Result]
"""A function of some module, so that another process finds it by name; tells how much it has done."""

# A fresh interpreter, whatever this process holds open; the same on every system.
_SPAWN = multiprocessing.get_context("spawn")


class RunFailed(SimulationRefused):
    """A run came to nothing: which one, and why."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    result: Result


def side_by_side(
    work: Work[Task, Result],
    tasks: Mapping[str, Task],
    progress: Progress | None = None,
    cores: int | None = None,
) -> list[Result]:
    """All results in the order of the tasks. `progress` is told how much they have done in all."""
    waiting = list(tasks.items())[::-1]
    running: dict[Connection, tuple[str, SpawnProcess]] = {}
    results: dict[str, Result] = {}
    passed = dict.fromkeys(tasks, 0)
    try:
        while waiting or running:
            while waiting and len(running) < (cores or os.cpu_count() or 1):
                name, task = waiting.pop()
                ours, process = _start(work)
                running[ours] = name, process
                # Not an argument of the process: one that died early would be told about it for ever.
                with suppress(ConnectionError):  # how it died, _receive() finds out
                    ours.send(task)
            for line in wait(list(running)):
                assert isinstance(line, Connection)
                name, process = running[line]
                told = _receive(line, name, process)
                if isinstance(told, _Done):
                    results[name] = told.result
                    del running[line]
                    process.join()
                    continue
                passed[name] = told
                if progress is not None:
                    progress(sum(passed.values()))
    finally:
        for _, process in running.values():
            process.kill()
            process.join()
    return [results[name] for name in tasks]


def _start(work: Work[Any, Any]) -> tuple[Connection, SpawnProcess]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_child, args=(theirs, work), daemon=True)
    # Ctrl-C goes to all of us. It is for the parent, which ends its children: they are born deaf to it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # so that the line ends when the child does
    return ours, process


def _receive(line: Connection, name: str, process: SpawnProcess) -> _Done[Any] | int:
    try:
        told = line.recv()
    except (EOFError, ConnectionError):
        process.join()
        raise RunFailed(f"the run of {name} ended {_how(process.exitcode)}") from None
    if isinstance(told, str):
        raise RunFailed(f"the run of {name} failed: {told}")
    assert isinstance(told, _Done | int)
    return told


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {-code} ({signal.strsignal(-code)}); was there memory enough?"
    return f"with code {code}"


def _child(line: Connection, work: Work[Any, Any]) -> None:
    told: Any
    try:
        told = _Done(work(line.recv(), line.send))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    with suppress(ConnectionError):  # nobody waits for it any more
        line.send(told)
