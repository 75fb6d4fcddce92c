"""Chooses the processes of an attempt that get a signal: the batch script, the tasks of srun, or both."""

from __future__ import annotations

from agent.processes import process_tree
from wire.agent.orders import STEP_VARIABLE, SignalTo


def receivers(supervisor: int, processes: list[int], number: int, to: SignalTo) -> list[int]:
    """Return the pids in `processes`, the processes of an attempt, that get the signal `number`. If `to` is
    HANDLERS, these are the processes with a handler for the signal. For any other value, `to` selects the
    batch script, the tasks of srun, or both.

    `supervisor` is the pid of the supervisor, which is the parent of the batch script. In a job without a
    batch script, the supervisor is the parent of the tasks.
    """
    if to is SignalTo.HANDLERS:
        return process_tree.with_handler(processes, number)
    scripts = process_tree.children(supervisor)
    steps = [pid for pid in processes if pid not in scripts and _step(pid)]
    return {SignalTo.BATCH: scripts, SignalTo.STEPS: steps, SignalTo.FULL: [*scripts, *steps]}[to]


def tasks_of_step(processes: list[int], step: int) -> list[int]:
    """Return the pids in `processes`, the processes of an attempt, that belong to tasks of the step with the
    number `step`.
    """
    return [pid for pid in processes if _step(pid).rpartition(".")[2] == str(step)]


def _step(pid: int) -> str:
    """Return the step of a process, such as 7.0; empty if the process belongs to no step. srun sets a
    variable with the step in the environment of its tasks.
    """
    start = f"{STEP_VARIABLE}=".encode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = [each for each in file.read().split(b"\0") if each.startswith(start)]
    except OSError:
        return ""  # The process has ended.
    return found[0][len(start) :].decode("ascii", "replace") if found else ""
