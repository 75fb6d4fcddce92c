"""A GPU that was not clean, a host that could begin nothing: the job goes elsewhere, it is not to blame."""

from __future__ import annotations

from controller.core.events import JobEnded, JobRequeued
from controller.core.jobs import Job
from wire.words import JobState, Reason


def elsewhere(job: Job, ended: JobEnded) -> JobRequeued | None:
    """The requeue in place of the outcome; that GPU, or that node, is out of the pool by now."""
    if ended.reason not in (Reason.GPU_HELD, Reason.NODE_UNFIT) or ended.state is not JobState.FAILED:
        return None
    return JobRequeued(job.id, ended.at, job.attempt, ended.reason, f"goes elsewhere: {ended.detail}")
