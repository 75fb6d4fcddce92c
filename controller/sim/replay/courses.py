"""How long everything took: what a job would have done at another time and place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from controller.core.events import (
    AttemptExited,
    AttemptStarted,
    Exit,
    JobEnded,
    JobEvent,
    JobPlaced,
    JobRequeued,
    MembersExited,
    MembersStarted,
    StopRequested,
)
from wire.words import Reason

NEVER = math.inf
LOST = ("node_lost", "supervisor_lost")


@dataclass(frozen=True, slots=True)
class Course:
    """How an attempt of a job goes; the members of a gang go together."""

    launch_s: float = 0.0
    """From its placement to its processes."""
    run_s: float = NEVER
    """How long they run: for ever if somebody cancelled it, until whoever it was does so again."""
    stop_s: float = 0.0
    """How long they take to end when told to."""
    code: int | None = 0
    signal: int | None = None
    why: str = ""
    launched: bool = True


class Recorder:
    """Follows the events of one job, and keeps the courses its attempts took by themselves, in order.

    An attempt that was lost or stopped says only how long it ran at least; what it saved counts towards the
    next. Where no attempt of a job came to an end of its own, it is taken to have been about to end when it
    was last seen.
    """

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self.placed_at: float | None = None
        """Of the attempt that waits, runs or ran last."""
        self._started_at: float | None = None
        self._exited_at: float | None = None
        self._stop: StopRequested | None = None
        self._blamed: AttemptExited | Exit | None = None
        self._saved_s = 0.0
        """What attempts that were cut short had saved for the next."""

    def note(self, event: JobEvent) -> None:
        """Take note of one fact."""
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def _placed(self, event: JobPlaced) -> None:
        self.placed_at = event.at
        self._started_at = self._exited_at = self._stop = self._blamed = None

    def _started(self, event: AttemptStarted | MembersStarted) -> None:
        self._started_at = event.at

    def _exited(self, event: AttemptExited | MembersExited) -> None:
        self._exited_at = event.at
        # The first failure decides what a gang comes to; those that were stopped for it come later.
        for how in event.exits.values():
            if self._blamed is None or (self._blamed.code == 0 and not self._blamed.why):
                self._blamed = how

    def _stopped(self, event: StopRequested) -> None:
        if event.reason is not Reason.MEMBER_FAILED:
            self._stop = event

    def _over(self, event: JobRequeued | JobEnded) -> None:
        course = self._own_course()
        if course is not None:
            self.courses.append(replace(course, run_s=self._saved_s + course.run_s))
        elif self._blamed is not None and self._blamed.checkpoint is not None:
            self._saved_s += max(0.0, self._blamed.checkpoint.at - self._begun())
        if isinstance(event, JobRequeued):
            self.placed_at = None

    _NOTES: ClassVar[Mapping[type, Callable[[Recorder, Any], None]]] = {
        JobPlaced: _placed,
        AttemptStarted: _started,
        AttemptExited: _exited,
        MembersStarted: _started,
        MembersExited: _exited,
        StopRequested: _stopped,
        JobRequeued: _over,
        JobEnded: _over,
    }

    def _own_course(self) -> Course | None:
        """That of the attempt that is over; None if it did not end by itself."""
        last = self._blamed
        if self.placed_at is None or last is None or self._exited_at is None or last.why.startswith(LOST):
            return None
        if self._stop is not None and self._stop.reason is Reason.USER:
            stop_s = max(0.0, self._exited_at - self._stop.at)
            return Course(self._begun() - self.placed_at, stop_s=stop_s)
        if self._stop is not None and last.why:
            return None
        return Course(
            self._begun() - self.placed_at,
            self._exited_at - self._begun(),
            code=last.code,
            signal=last.signal,
            why=last.why,
            launched=self._started_at is not None,
        )

    def _begun(self) -> float:
        assert self.placed_at is not None
        return self.placed_at if self._started_at is None else self._started_at

    def known(self, until: float) -> tuple[Course, ...]:
        """All that is known at the end of the record; one course at least."""
        if self.courses:
            return tuple(self.courses)
        if self.placed_at is None:
            return (Course(),)
        seen_s = (until if self._exited_at is None else self._exited_at) - self._begun()
        return (Course(self._begun() - self.placed_at, self._saved_s + seen_s),)
