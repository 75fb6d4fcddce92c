"""Chooses the processes of an attempt that get a signal: the batch script, the tasks of srun, or both."""

from __future__ import annotations

from agent.supervisor import process_tree
from wire.agent.orders import STEP_VARIABLE, SignalTo


def receivers(supervisor: int, processes: list[int], number: int, to: SignalTo) -> list[int]:
    """Return those of the attempt's processes that get the signal `number`. `supervisor` is the parent of the
    batch script, or of the tasks of another job.
    """
    if to is SignalTo.HANDLERS:
        return process_tree.with_handler(processes, number)
    scripts = process_tree.children(supervisor)
    steps = [pid for pid in processes if pid not in scripts and _is_task(pid)]
    return {SignalTo.BATCH: scripts, SignalTo.STEPS: steps, SignalTo.FULL: [*scripts, *steps]}[to]


def _is_task(pid: int) -> bool:
    """Return whether the process belongs to a task of srun, which marks the environment of its tasks."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(each.startswith(f"{STEP_VARIABLE}=".encode()) for each in file.read().split(b"\0"))
    except OSError:
        return False  # The process has ended.
