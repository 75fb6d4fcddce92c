"""Derives the outcome of a job from the exit codes and signals of its processes on each node (the gang
members).
"""

from __future__ import annotations

from controller.core.model.events.attempts import JobEnded
from controller.core.model.job import Job, Member
from wire.job.gangs import MemberFailure
from wire.names import JobState, Reason

NODE_UNFIT = "node_unfit"
_BY_WHY = {
    "time_limit": Reason.TIME_LIMIT,
    "launch_failed": Reason.LAUNCH_FAILED,
    "gpu_held": Reason.GPU_HELD,
    NODE_UNFIT: Reason.NODE_UNFIT,
    "port_in_use": Reason.NODE_UNFIT,
    "refused": Reason.LAUNCH_FAILED,
    "node_lost": Reason.NODE_LOST,
    "supervisor_lost": Reason.SUPERVISOR_LOST,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "scratch_exceeded": Reason.SCRATCH_EXCEEDED,
}


PREEMPTED = "preempted"
SHRUNK = "shrunk"


def was_preempted(job: Job) -> bool:
    """Return whether the attempt ended because of a preemption; False if the program exited before the stop
    order arrived.
    """
    return job.stopping is Reason.PREEMPTED and any(
        member.why == PREEMPTED for member in job.members.values()
    )


def continues_without_failed(job: Job) -> bool:
    """Return whether the gang continues to run without its failed members. The gang continues only with
    `on_failure` = "continue", and only if enough members can still succeed.
    """
    gang = job.spec.gang
    if gang.on_failure is not MemberFailure.CONTINUE:
        return False
    left = [member for member in job.members.values() if not member.leaving]
    return sum(not member.failed for member in left) >= required_members(job)


def required_members(job: Job) -> int:
    """Return how many members of the gang must succeed with `on_failure` = "continue". For any other value of
    `on_failure`, all members must succeed.
    """
    return job.spec.gang.min_nodes or len(job.members)


def outcome_of(job: Job, now: float) -> JobEnded:
    """Return the outcome of a job whose members have all ended.

    1. The job was stopped because its health checks failed: FAILED.
    2. All members succeeded or, with on_failure = "continue", enough members succeeded: COMPLETED, even if a
       stop was ordered. Members that an elastic job gave up do not count. A batch job is not COMPLETED if its
       command (the member on its first node) has failed.
    3. In all other cases the exit code and signal come from the member that failed first. A member that was
       stopped because another member had failed counts only if no other member has failed. With on_failure =
       "continue", they come from the command of a batch job if the command has failed without a stop order.
    4. In case 3, a job that was stopped by a user, its service or a drain is CANCELLED for this reason. A job
       that was stopped at its deadline is FAILED for this reason. Any other job is FAILED for the reason of
       the member that failed first.
    """
    failed = [member for member in job.members.values() if member.failed]
    if job.stopping is Reason.UNHEALTHY:
        # If all members exited with code 0 after the stop order, use the exit of the member that ended first.
        # The job is FAILED in this case too.
        first = min(failed or job.members.values(), key=_blame)
        detail = f"unhealthy: {job.stopped_by}"
        return JobEnded(job.id, now, JobState.FAILED, Reason.UNHEALTHY, detail, first.code, first.signal)
    if not failed:
        return JobEnded(job.id, now, JobState.COMPLETED, Reason.NONE, code=0)
    if job.spec.gang.on_failure is MemberFailure.CONTINUE:
        command, counted = next(iter(job.members.values())), len(job.shown_members)
        well = counted - len(failed)
        if job.spec.batch and command.failed:
            failed = failed if command.why == "member_failed" else [command]
        elif well and well >= required_members(job):
            detail = f"{well} of {counted} members succeeded"
            return JobEnded(job.id, now, JobState.COMPLETED, Reason.NONE, detail, code=0)
    first = min(failed, key=_blame)
    if job.stopping is Reason.USER:
        detail = f"cancelled by {job.stopped_by}"
        return JobEnded(job.id, now, JobState.CANCELLED, Reason.USER, detail, first.code, first.signal)
    if job.stopping is Reason.SERVICE:
        detail = job.stopped_by
        return JobEnded(job.id, now, JobState.CANCELLED, Reason.SERVICE, detail, first.code, first.signal)
    if job.stopping is Reason.DRAINED:
        detail = f"ended by {job.stopped_by}"
        return JobEnded(job.id, now, JobState.CANCELLED, Reason.DRAINED, detail, first.code, first.signal)
    if job.stopping is Reason.DEADLINE:
        return JobEnded(
            job.id,
            now,
            JobState.FAILED,
            Reason.DEADLINE,
            "was still running at its deadline",
            first.code,
            first.signal,
        )
    reason, detail = _reason(first)
    if len(job.members) > 1:
        detail = f"{first.allocation.node}: {detail}"
    return JobEnded(job.id, now, JobState.FAILED, reason, detail, first.code, first.signal)


def _blame(member: Member) -> tuple[bool, float]:
    """Return a sort key for gang members: earlier ends come first, but members that were stopped because
    another member had failed come last. The first member in this order decides the outcome of the job.
    """
    return member.why == "member_failed", member.ended_at or 0.0


def _reason(member: Member) -> tuple[Reason, str]:
    word, _, rest = member.why.partition(":")
    if word in _BY_WHY:
        return _BY_WHY[word], rest.strip() or word.replace("_", " ")
    if member.fault:
        how = f"exit code {member.code}" if member.signal is None else f"killed by signal {member.signal}"
        return (Reason.GPU_ERROR if member.own else Reason.GPU_FAILED), f"{member.fault} ({how})"
    if member.signal is not None:
        return Reason.SIGNAL, f"killed by signal {member.signal}"
    return Reason.EXIT_NONZERO, f"exit code {member.code}"
