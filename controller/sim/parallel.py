"""Runs simulations and replays (tasks) in parallel processes, at most as many at a time as there are CPU
cores.
"""

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
"""A function that runs a task. It must be a module-level function, because the child process imports it by
name. It reports its progress by calling its second argument with a number.
"""

# Start processes with spawn, because a forked child would inherit the open files of this process, and locks
# that its threads hold.
_SPAWN = multiprocessing.get_context("spawn")


class RunFailed(SimulationRefused):
    """Raised if a task failed or its process ended without a result. The message names the task and the
    reason."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[Result]):
    result: Result


def run_in_processes(
    work: Work[Task, Result],
    tasks: Mapping[str, Task],
    progress: Progress | None = None,
    cores: int | None = None,
) -> list[Result]:
    """Call `work` for each task in a separate process, and return the results in the order of the tasks.
    Raise RunFailed if a task fails.

    Each task reports its progress as a number, such as the number of ended jobs. `progress` is called with
    the sum of these numbers.

    1. Start `cores` processes (by default as many as the machine has cores), but not more than there are
       tasks. Send each process one task.
    2. Receive messages from the processes: a number is progress, `_Done` contains the result, and a string is
       an error.
    3. When a process has sent its result, start a new process for the next task.
    4. At the end, also after an error, kill the processes that still run.
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
                # Send the task through the pipe and not as an argument of spawn, which could block forever if
                # the child ended early.
                with suppress(ConnectionError):  # If the child has ended, _receive() reports the reason.
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
    # Block SIGINT while the child starts, so that the child inherits the block. On Ctrl-C the terminal sends
    # SIGINT to the parent and the children, but only the parent must react, and kill the children.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # Close the parent's copy of the child's end of the pipe, so that reading from the pipe ends when the
    # child exits.
    theirs.close()
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
    with suppress(ConnectionError):  # Ignore the error if the parent has closed the pipe.
        line.send(message)
