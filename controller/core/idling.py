"""Jobs that hold GPUs and let them do nothing: flagged, told, and ended if the site wants them back."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.core import inputs
from controller.core.effects import Effect, SendToNode
from controller.core.events import Event, IdleEnded, IdleNoted, JobEnded, JobRequeued
from controller.core.jobs import Job
from wire.frames import Note
from wire.text import duration
from wire.words import JobState, Reason

if TYPE_CHECKING:
    from controller.core.state import State


class Reclaim(enum.Enum):
    """What becomes of a job that lets its GPUs idle."""

    FLAG = "flag"
    """Nothing but that everybody sees it."""
    REQUEUE = "requeue"
    """It saves its state if it can, and is queued again in its old place."""
    CANCEL = "cancel"
    """It saves its state if it can, and is over."""


@dataclass(frozen=True, slots=True)
class Idling:
    """`[gpus]` of scheduler.toml: after how long GPUs count as idle, and what follows."""

    after_s: float = 1_800.0
    reclaim: Reclaim = Reclaim.FLAG
    grace_s: float = 600.0
    """Between the flag and the end."""


USUAL_IDLING: Idling = Idling()


class Overseer:
    """Decides what follows from GPUs that idle; readings and the watch of the time are the daemon's."""

    def __init__(
        self,
        state: State,
        idling: Idling,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
        stop: Callable[[Job, Reason, str, float], None],
    ) -> None:
        self._state = state
        self._idling = idling
        self._record = record
        self._order = order
        self._stop = stop

    def idle(self, given: inputs.GpusIdle, now: float) -> None:
        """All GPUs of a job have done nothing since then; told again as long as that is so."""
        job = self._running(given.job, given.attempt)
        if job is None:
            return
        if job.idle_since is None:
            ends = self._idling.reclaim is not Reclaim.FLAG
            until = now + self._idling.grace_s if ends else None
            self._record(IdleNoted(job.id, now, job.attempt, given.since, until))
            self._tell(job, now)
        elif job.idle_until is not None and now >= job.idle_until and job.stopping is None:
            told = f"its GPUs did nothing for {duration(now - job.idle_since)}"
            self._stop(job, Reason.IDLE, told, now)

    def busy(self, given: inputs.GpusBusy, now: float) -> None:
        """Some GPU of the job works again."""
        job = self._running(given.job, given.attempt)
        if job is not None and job.idle_since is not None:
            self._record(IdleEnded(job.id, now, job.attempt))

    def _running(self, number: int, attempt: int) -> Job | None:
        job = self._state.jobs.get(number)
        return job if job is not None and job.state is JobState.RUNNING and job.attempt == attempt else None

    def _tell(self, job: Job, now: float) -> None:
        """In the place where its owner looks for errors."""
        for member in job.running:
            text = told(job, now)
            self._order(SendToNode(member.allocation.node, Note(job.id, job.attempt, text)))


def told(job: Job, now: float) -> str:
    """That a job's GPUs idle, and what will follow."""
    if job.idle_since is None:
        return ""
    sentence = f"its GPUs have done nothing for {duration(now - job.idle_since)}"
    if job.idle_until is None:
        return sentence
    return (
        f"{sentence}; it will be ended in {duration(max(0.0, job.idle_until - now))} if that does not change"
    )


def reclaimed(job: Job, ended: JobEnded, idling: Idling) -> JobEnded | JobRequeued | None:
    """What takes the place of this outcome if the job was ended for that."""
    if job.stopping is not Reason.IDLE or ended.state is not JobState.FAILED:
        return None
    why = job.stopped_by
    if idling.reclaim is Reclaim.REQUEUE and ended.reason is Reason.NODE_LOST:
        return None  # nobody can tell whether it succeeded before
    if idling.reclaim is Reclaim.REQUEUE:
        return JobRequeued(job.id, ended.at, job.attempt, Reason.IDLE, f"queued again: {why}")
    return JobEnded(job.id, ended.at, JobState.CANCELLED, Reason.IDLE, why, ended.code, ended.signal)
