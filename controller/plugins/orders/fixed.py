"""Orders in which the rank of a job does not change while the job waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.model.job import NEVER, Job


@dataclass(frozen=True, slots=True)
class FifoOrder:
    """The `fifo` order: submit order. First in, first out."""

    name: ClassVar[str] = "fifo"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Equal for all jobs: the submit order decides."""
        return ()


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """The `priority` order: highest priority first, then submit order. Ranks by priority, 0 to 100."""

    name: ClassVar[str] = "priority"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (-job.priority,)


@dataclass(frozen=True, slots=True)
class ShortestFirstOrder:
    """The `shortest` order: shortest time limit first, then submit order.

    Ranks by time limit; jobs without a limit are last.
    """

    name: ClassVar[str] = "shortest"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (job.limit,)


@dataclass(frozen=True, slots=True)
class DeadlineOrder:
    """The `deadline` order: earliest deadline first, jobs without a deadline last.

    Ranks by the time at which the job must have ended.
    """

    name: ClassVar[str] = "deadline"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return (NEVER if job.spec.deadline_at is None else job.spec.deadline_at,)
