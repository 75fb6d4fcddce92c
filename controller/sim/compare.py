"""Several policies on the same log, each in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from controller.sim.processes import Progress, RunFailed, side_by_side
from controller.sim.run import Outcome, Task, run

__all__ = ["RunFailed", "compare"]


def compare(
    tasks: Sequence[Task], progress: Progress | None = None, cores: int | None = None
) -> list[Outcome]:
    """All outcomes in the order of the tasks. `progress` is told how many jobs have ended in all."""
    return side_by_side(run, {task.policy.name: task for task in tasks}, progress, cores)
