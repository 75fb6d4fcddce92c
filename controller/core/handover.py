"""A GPU that was not clean when it was to be handed over: the job goes elsewhere, by no fault of its own."""

from __future__ import annotations

from controller.core.events import JobEnded, JobRequeued
from controller.core.jobs import Job
from wire.words import JobState, Reason


def elsewhere(job: Job, ended: JobEnded) -> JobRequeued | None:
    """The requeue in place of the outcome; that GPU is out of the pool by now."""
    if ended.reason is not Reason.GPU_HELD or ended.state is not JobState.FAILED:
        return None
    return JobRequeued(job.id, ended.at, job.attempt, Reason.GPU_HELD, f"goes elsewhere: {ended.detail}")
