"""What a run came to: every job's life, and the figures people compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from controller.core.events import (
    Allocation,
    AttemptStarted,
    Event,
    JobEnded,
    JobPlaced,
    JobPreempted,
    JobQueued,
    JobRequeued,
    MembersStarted,
    MovePlanned,
    MoveUndone,
)
from wire.words import JobState, Reason

TAU_S = 10.0
"""Jobs shorter than this count as this long in the bounded slowdown."""


@dataclass(slots=True)
class Life:
    """One job from submit to end, as the events told it."""

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
    """GPU-seconds of attempts that came to nothing."""
    moves: int = 0
    """Times that it went on elsewhere because of rebalancing."""
    allocations: tuple[Allocation, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes the last attempt had."""
        return len(self.allocations)

    @property
    def wait_s(self) -> float:
        """From submit to the last start."""
        return 0.0 if self.start_s is None else self.start_s - self.submit_s

    @property
    def run_s(self) -> float:
        """From the last start to the end."""
        return 0.0 if self.start_s is None or self.end_s is None else self.end_s - self.start_s

    @property
    def slowdown(self) -> float:
        """Bounded slowdown: max(1, (wait + run) / max(run, tau))."""
        return max(1.0, (self.wait_s + self.run_s) / max(self.run_s, TAU_S))


@dataclass
class Lives:
    """Follows the events of a run; `witness` is what a Simulation calls."""

    by_job: dict[int, Life] = field(default_factory=dict)

    def witness(self, event: Event) -> None:
        """Take note of one fact."""
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def _queued(self, event: JobQueued) -> None:
        spec = event.spec
        self.by_job[event.job] = Life(
            event.job,
            event.user,
            spec.project,
            spec.gpus,
            spec.cpu_milli * (spec.nodes or 1),
            spec.time_limit_s,
            event.at,
        )

    def _placed(self, event: JobPlaced) -> None:
        life = self.by_job[event.job]
        life.start_s, life.attempts = event.at, event.attempt
        life.allocations, life.quality = event.allocations, event.quality

    def _started(self, event: AttemptStarted | MembersStarted) -> None:
        self.by_job[event.job].state = JobState.RUNNING

    def _preempted(self, event: JobPreempted) -> None:
        life = self.by_job[event.job]
        life.lost_gpu_s += 3_600 * event.gpu_hours
        life.start_s = None  # what it had saved is not lost

    def _requeued(self, event: JobRequeued) -> None:
        life = self.by_job[event.job]
        life.requeues += 1
        held_s = 0.0 if life.start_s is None else event.at - life.start_s
        life.lost_gpu_s += life.gpus * held_s
        life.start_s = None
        life.state = JobState.QUEUED

    def _moved(self, event: MovePlanned) -> None:
        self.by_job[event.job].moves += 1

    def _move_undone(self, event: MoveUndone) -> None:
        self.by_job[event.job].moves -= 1

    def _ended(self, event: JobEnded) -> None:
        life = self.by_job[event.job]
        life.end_s, life.state, life.reason = event.at, event.state, event.reason

    _NOTES: ClassVar[dict[type, Callable[[Lives, Any], None]]] = {
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

    def ran(self) -> list[Life]:
        """Jobs that ran to an end, by job."""
        return [life for life in self.by_job.values() if life.start_s is not None and life.end_s is not None]


def mean(values: Iterable[float]) -> float:
    """The mean, 0 of nothing."""
    listed: Sequence[float] = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def quantile(values: Iterable[float], part: float) -> float:
    """The value that `part` of all stay at or below (nearest rank), 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))] if ordered else 0.0
