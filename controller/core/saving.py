"""What a job that runs has saved: from then on less would be lost if it were ended."""

from __future__ import annotations

from dataclasses import replace

from controller.core.events import CheckpointSaved
from controller.core.jobs import Job
from wire.frames import AttemptStatus


def saved(job: Job, node: str, status: AttemptStatus, now: float) -> CheckpointSaved | None:
    """That a member which runs has saved something newer than all that is known."""
    if status.checkpoint is None or status.ended_at is not None:
        return None
    # The host's clock may be ahead: nothing was saved later than now.
    found = replace(status.checkpoint, at=min(status.checkpoint.at, now))
    if job.checkpoint is not None and job.checkpoint.at >= found.at:
        return None
    return CheckpointSaved(job.id, now, job.attempt, node, found)
