"""What a job came to, from what its processes returned."""

from __future__ import annotations

from controller.core.events import JobEnded
from controller.core.jobs import Job, Member
from wire.gangs import MemberFailure
from wire.words import JobState, Reason

UNFIT = "node_unfit"
_BY_WHY = {
    "time_limit": Reason.TIME_LIMIT,
    "launch_failed": Reason.LAUNCH_FAILED,
    "gpu_held": Reason.GPU_HELD,
    UNFIT: Reason.NODE_UNFIT,
    "refused": Reason.LAUNCH_FAILED,
    "node_lost": Reason.NODE_LOST,
    "supervisor_lost": Reason.SUPERVISOR_LOST,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "scratch_exceeded": Reason.SCRATCH_EXCEEDED,
}


PREEMPTED = "preempted"
SHRUNK = "shrunk"


def was_preempted(job: Job) -> bool:
    """Did the job end so that others could run? Not if it ended by itself before it was told."""
    return job.stopping is Reason.PREEMPTED and any(
        member.why == PREEMPTED for member in job.members.values()
    )


def goes_on(job: Job) -> bool:
    """Do the others do without a member that failed? Only as long as enough of them may still end well."""
    gang = job.spec.gang
    if gang.on_failure is not MemberFailure.CONTINUE:
        return False
    left = [member for member in job.members.values() if not member.leaving]
    return sum(not member.failed for member in left) >= enough(job)


def enough(job: Job) -> int:
    """How many members have to end well."""
    return job.spec.gang.min_nodes or len(job.members)


def outcome_of(job: Job, now: float) -> JobEnded:
    """The outcome of a job whose members are all over: what the processes returned, whatever was asked."""
    failed = [member for member in job.members.values() if member.failed]
    if not failed:
        return JobEnded(job.id, now, JobState.COMPLETED, Reason.NONE, code=0)
    well = len(job.members) - len(failed)
    if well and job.spec.gang.on_failure is MemberFailure.CONTINUE and well >= enough(job):
        told = f"{well} of {len(job.members)} members ended well"
        return JobEnded(job.id, now, JobState.COMPLETED, Reason.NONE, told, code=0)
    first = min(failed, key=_blame)
    if job.stopping is Reason.USER:
        detail = f"cancelled by {job.stopped_by}"
        return JobEnded(job.id, now, JobState.CANCELLED, Reason.USER, detail, first.code, first.signal)
    if job.stopping is Reason.DEADLINE:
        return JobEnded(
            job.id, now, JobState.FAILED, Reason.DEADLINE, "ran into its deadline", first.code, first.signal
        )
    reason, detail = _reason(first)
    if len(job.members) > 1:
        detail = f"{first.allocation.node}: {detail}"
    return JobEnded(job.id, now, JobState.FAILED, reason, detail, first.code, first.signal)


def _blame(member: Member) -> tuple[bool, float]:
    """Members that were stopped because of another come last."""
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
