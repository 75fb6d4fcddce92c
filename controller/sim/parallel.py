"""Runs tasks in parallel, each in a process of its own, as many at once as there are cores."""

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

from controller.sim.errors import SimulationRefused

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int], None]
Work = Callable[[Task, Progress], Result]
"""A module-level function, because the other process imports it by name. It reports its progress."""

# Spawn, not fork: the child must not inherit open files and threads of this process.
_SPAWN = multiprocessing.get_context("spawn")


class RunFailed(SimulationRefused):
    """A task failed or its process died: which task, and why."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    result: Result


def run_in_processes(
    work: Work[Task, Result],
    tasks: Mapping[str, Task],
    progress: Progress | None = None,
    cores: int | None = None,
) -> list[Result]:
    """Results in the order of the tasks; raises RunFailed. `progress` gets the sum of what all tasks have
    done.

    1. Start processes until there are as many as cores; send each its task.
    2. Wait for messages: a number is progress, `_Done` is the result, a text is an error.
    3. When a process has given its result, start the next task.
    Whatever happens, the processes that still run are killed at the end.
    """
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
                # Sent through the pipe, because spawn would block writing the arguments of a child that
                # died early.
                with suppress(ConnectionError):  # _receive() reports how the child died
                    ours.send(task)
            for line in wait(list(running)):
                assert isinstance(line, Connection)
                name, process = running[line]
                message = _receive(line, name, process)
                if isinstance(message, _Done):
                    results[name] = message.result
                    del running[line]
                    process.join()
                    continue
                passed[name] = message
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
    # Ctrl-C reaches the whole process group. Children ignore it, because the parent kills them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # so that reading ends when the child exits
    return ours, process


def _receive(line: Connection, name: str, process: SpawnProcess) -> _Done[Any] | int:
    try:
        message = line.recv()
    except (EOFError, ConnectionError):
        process.join()
        raise RunFailed(f"the run of {name} ended {_how(process.exitcode)}") from None
    if isinstance(message, str):
        raise RunFailed(f"the run of {name} failed: {message}")
    assert isinstance(message, _Done | int)
    return message


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {-code} ({signal.strsignal(-code)}); the host may have run out of memory"
    return f"with code {code}"


def _child(line: Connection, work: Work[Any, Any]) -> None:
    message: Any
    try:
        message = _Done(work(line.recv(), line.send))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    with suppress(ConnectionError):  # the parent has stopped waiting
        line.send(message)
