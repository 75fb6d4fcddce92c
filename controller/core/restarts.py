"""Whether a job that is over runs again by itself."""

from __future__ import annotations

from controller.core.events import JobEnded, JobRequeued
from controller.core.jobs import NEVER, Job
from wire.conditions import RestartWhen
from wire.gangs import MemberFailure
from wire.text import duration
from wire.words import JobState, Reason

BEYOND = (Reason.NODE_LOST, Reason.SUPERVISOR_LOST, Reason.GPU_FAILED)
"""Ends that say nothing about the program: worth another try whatever codes are named."""


def restarted(job: Job, ended: JobEnded) -> JobRequeued | None:
    """The requeue that takes the place of this outcome, if the job's restart policy has one left."""
    policy, before = job.spec.restart, job.wait.restarts
    cut = job.stopping is not None and job.stopping is not Reason.MEMBER_FAILED
    together = len(job.members) > 1 and job.spec.gang.on_failure is MemberFailure.RESTART
    if cut or (policy.when is RestartWhen.NEVER and not together):
        return None
    if not _again(job, ended) or (policy.limit is not None and before >= policy.limit):
        return None
    delay = policy.delay(before)
    deadline = job.spec.deadline_at
    if deadline is not None and ended.at + delay + (0.0 if job.limit == NEVER else job.limit) > deadline:
        return None
    count = f"restart {before + 1}" + ("" if policy.limit is None else f" of {policy.limit}")
    after = ended.detail or "it completed"
    detail = f"{count} in {duration(delay)}: {after}" if delay else f"{count}: {after}"
    reason = ended.reason if ended.reason is not Reason.NONE else Reason.NEW
    again_at = ended.at + delay if delay else None
    return JobRequeued(job.id, ended.at, job.attempt, reason, detail, again_at, restart=True)


def _again(job: Job, ended: JobEnded) -> bool:
    policy = job.spec.restart
    if ended.state is JobState.COMPLETED:
        return policy.when is RestartWhen.ALWAYS
    if not policy.codes or ended.reason in BEYOND:
        return True
    code = 128 + ended.signal if ended.signal is not None else ended.code
    return code in policy.codes
