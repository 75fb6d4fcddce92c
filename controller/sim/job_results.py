"""Collects the results of each simulated job (start, end, nodes, lost work) from the events of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import (
    AttemptStarted,
    JobEnded,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    MembersStarted,
)
from controller.core.model.events.event import Event
from controller.core.model.events.nominations import MovePlanned, MoveUndone
from controller.core.model.events.queued import JobQueued
from wire.names import JobState, Reason

TAU_S = 10.0
"""Seconds. In the bounded slowdown, a job that ran for less than this counts as if it had run this long."""


@dataclass(slots=True)
class SimulatedJob:
    """The result of one simulated job: its submit, starts and end, its nodes, and the work that it lost."""

    job: int
    user: str
    project: str
    gpus: float
    cpu_milli: int
    limit_s: float | None
    submit_s: float
    number: int = 0
    start_s: float | None = None
    end_s: float | None = None
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NONE
    quality: int | None = None
    attempts: int = 0
    requeues: int = 0
    lost_gpu_s: float = 0.0
    """GPU-seconds of work that the job lost, because attempts were stopped before they had saved it, and of
    start overhead that it spent again."""
    moves: int = 0
    """Number of times that rebalancing moved the job to other nodes."""
    allocations: tuple[Allocation, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the last attempt."""
        return len(self.allocations)

    @property
    def wait_s(self) -> float:
        """Return the seconds from the submit to the last start; 0 if the job has not started, or waits
        again.
        """
        return 0.0 if self.start_s is None else self.start_s - self.submit_s

    @property
    def run_s(self) -> float:
        """Return the seconds from the last start to the end; 0 if the job has not ended."""
        return 0.0 if self.start_s is None or self.end_s is None else self.end_s - self.start_s

    @property
    def slowdown(self) -> float:
        """Return the bounded slowdown: max(1, (wait + run) / max(run, TAU_S))."""
        return max(1.0, (self.wait_s + self.run_s) / max(self.run_s, TAU_S))


@dataclass
class SimulatedJobs:
    """The results of all jobs of a run. A simulation calls `observe` with every event."""

    by_job: dict[int, SimulatedJob] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def _queued(self, event: JobQueued) -> None:
        spec = event.spec
        self.by_job[event.job] = SimulatedJob(
            event.job,
            event.user,
            spec.project,
            spec.gpus,
            spec.cpu_milli * (spec.nodes or 1),
            spec.time_limit_s,
            event.at,
        )

    def _placed(self, event: JobPlaced) -> None:
        record = self.by_job[event.job]
        record.start_s, record.attempts = event.at, event.attempt
        record.allocations, record.quality = event.allocations, event.quality

    def _started(self, event: AttemptStarted | MembersStarted) -> None:
        self.by_job[event.job].state = JobState.RUNNING

    def _preempted(self, event: JobPreempted) -> None:
        record = self.by_job[event.job]
        record.lost_gpu_s += 3_600 * event.gpu_hours
        # This event already contains the lost work. Remove the start time, so that _requeued() does not count
        # this work again.
        record.start_s = None

    def _requeued(self, event: JobRequeued) -> None:
        record = self.by_job[event.job]
        record.requeues += 1
        held_s = 0.0 if record.start_s is None else event.at - record.start_s
        record.lost_gpu_s += record.gpus * held_s
        record.start_s = None
        record.state = JobState.QUEUED

    def _moved(self, event: MovePlanned) -> None:
        self.by_job[event.job].moves += 1

    def _move_undone(self, event: MoveUndone) -> None:
        self.by_job[event.job].moves -= 1

    def _ended(self, event: JobEnded) -> None:
        record = self.by_job[event.job]
        record.end_s, record.state, record.reason = event.at, event.state, event.reason

    _NOTES: ClassVar[dict[type, Callable[[SimulatedJobs, Any], None]]] = {
        JobQueued: _queued,
        JobPlaced: _placed,
        AttemptStarted: _started,
        MembersStarted: _started,
        JobPreempted: _preempted,
        JobRequeued: _requeued,
        MovePlanned: _moved,
        MoveUndone: _move_undone,
        JobEnded: _ended,
    }

    def ran(self) -> list[SimulatedJob]:
        """Return the jobs that have started and ended, in the order of their ids."""
        return [
            record
            for record in self.by_job.values()
            if record.start_s is not None and record.end_s is not None
        ]


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values, or 0 if there are none."""
    listed: Sequence[float] = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def quantile(values: Iterable[float], part: float) -> float:
    """Return a quantile of the values by the nearest-rank method. With `part` 0.5 it is the median, with
    `part` 1 the maximum.

    The result is 0 if there are no values.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))] if ordered else 0.0
