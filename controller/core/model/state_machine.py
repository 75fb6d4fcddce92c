"""The state transitions that a job may make."""

from __future__ import annotations

from typing import Final

from controller.core.model.job import Job
from wire.names import JobState, Reason

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
    """Raised for an event that the job's state does not allow. Such an event is always a bug."""


def change_state(job: Job, new: JobState, reason: Reason, detail: str = "") -> None:
    """Change the state of a job. Raises IllegalTransition if the table LEGAL does not allow the change."""
    if new not in LEGAL[job.state]:
        raise IllegalTransition(f"job {job.id}: {job.state.value} -> {new.value}")
    job.state, job.reason, job.detail = new, reason, detail
