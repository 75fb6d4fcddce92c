"""Collects the run times of recorded attempts. From these, a replay predicts the run time of a job that
starts at another time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    Exit,
    JobEnded,
    JobPlaced,
    JobRequeued,
    MembersExited,
    MembersStarted,
    StopRequested,
)
from controller.core.model.events.event import JobEvent
from wire.names import Reason

NEVER = math.inf
LOST = ("node_lost", "supervisor_lost")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The run time of an attempt, and how it ended (exit code, signal, reason). All members of a gang run
    equally long and end in the same way.
    """

    launch_s: float = 0.0
    """Seconds from placement to the start of the processes."""
    run_s: float = NEVER
    """Run time in seconds. It is infinite for a cancelled attempt, because the replay repeats the recorded
    cancel, and for a job that was never placed.
    """
    stop_s: float = 0.0
    """Seconds from a stop order to the end of the processes."""
    code: int | None = 0
    signal: int | None = None
    why: str = ""
    launched: bool = True


class RunRecorder:
    """Collects from the events of one job the run times of its attempts, without attempts that were stopped
    or lost.

    An attempt that was lost or stopped shows only that the job needs at least this run time. If such an
    attempt saved a checkpoint, the saved run time is added to the run time of the next attempt. If every
    attempt was lost or stopped, the run time of the last attempt is used; an attempt that still runs is
    assumed to end with the journal.
    """

    def __init__(self) -> None:
        self.runs: list[RecordedRun] = []
        self.placed_at: float | None = None
        """Time at which the current or last attempt was placed; None while the job is queued."""
        self._started_at: float | None = None
        self._exited_at: float | None = None
        self._stop: StopRequested | None = None
        self._first_failure: AttemptExited | Exit | None = None
        self._saved_s = 0.0
        """Seconds of run time that stopped attempts have saved in checkpoints."""

    def note(self, event: JobEvent) -> None:
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def _placed(self, event: JobPlaced) -> None:
        self.placed_at = event.at
        self._started_at = self._exited_at = self._stop = self._first_failure = None

    def _started(self, event: AttemptStarted | MembersStarted) -> None:
        self._started_at = event.at

    def _exited(self, event: AttemptExited | MembersExited) -> None:
        self._exited_at = event.at
        # Use the exit of the first member that failed, because the other members were stopped as a
        # consequence.
        for how in event.exits.values():
            if self._first_failure is None or (self._first_failure.code == 0 and not self._first_failure.why):
                self._first_failure = how

    def _stopped(self, event: StopRequested) -> None:
        if event.reason is not Reason.MEMBER_FAILED:
            self._stop = event

    def _over(self, event: JobRequeued | JobEnded) -> None:
        run = self._last_run()
        if run is not None:
            self.runs.append(replace(run, run_s=self._saved_s + run.run_s))
        elif self._first_failure is not None and self._first_failure.checkpoint is not None:
            self._saved_s += max(0.0, self._first_failure.checkpoint.at - self._begun())
        if isinstance(event, JobRequeued):
            self.placed_at = None

    _NOTES: ClassVar[Mapping[type, Callable[[RunRecorder, Any], None]]] = {
        JobPlaced: _placed,
        AttemptStarted: _started,
        AttemptExited: _exited,
        MembersStarted: _started,
        MembersExited: _exited,
        StopRequested: _stopped,
        JobRequeued: _over,
        JobEnded: _over,
    }

    def _last_run(self) -> RecordedRun | None:
        """Return the run of the attempt that has just ended. If a user cancelled the attempt, the run time in
        the result is infinite. Return None if the attempt was lost, or was stopped for another reason.
        """
        last = self._first_failure
        if self.placed_at is None or last is None or self._exited_at is None or last.why.startswith(LOST):
            return None
        if self._stop is not None and self._stop.reason is Reason.USER:
            stop_s = max(0.0, self._exited_at - self._stop.at)
            return RecordedRun(self._begun() - self.placed_at, stop_s=stop_s)
        if self._stop is not None and last.why:
            return None
        return RecordedRun(
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

    def known(self, until: float) -> tuple[RecordedRun, ...]:
        """Return the runs of the job's attempts, without attempts that were stopped or lost. If no run
        remains, return one run with the run time that the journal shows; it is infinite if the job was never
        placed. `until` is the time of the last journal entry.
        """
        if self.runs:
            return tuple(self.runs)
        if self.placed_at is None:
            return (RecordedRun(),)
        seen_s = (until if self._exited_at is None else self._exited_at) - self._begun()
        return (RecordedRun(self._begun() - self.placed_at, self._saved_s + seen_s),)
