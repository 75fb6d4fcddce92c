"""The only moves a job can make; everything else is refused."""

from __future__ import annotations

from typing import Final

from wire.words import JobState

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
    """A bug: an event that no state of the job allows."""


def require(job: int, old: JobState, new: JobState) -> None:
    """Stop at once rather than record a life that could not have been lived."""
    if new not in LEGAL[old]:
        raise IllegalTransition(f"job {job}: {old.value} -> {new.value}")
