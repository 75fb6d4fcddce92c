"""The legal state transitions of a job."""

from __future__ import annotations

from typing import Final

from wire.names import JobState

LEGAL: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.QUEUED: frozenset({JobState.SCHEDULED, JobState.CANCELLED, JobState.FAILED}),
    JobState.SCHEDULED: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.PREEMPTED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED, JobState.QUEUED}
    ),
    JobState.PREEMPTED: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


class IllegalTransition(AssertionError):
    """A bug: an event that the state of the job does not allow."""


def require_legal(job: int, old: JobState, new: JobState) -> None:
    """Raise IllegalTransition if a job cannot change from `old` to `new`."""
    if new not in LEGAL[old]:
        raise IllegalTransition(f"job {job}: {old.value} -> {new.value}")
