"""Decides if a job is queued again after the end of an attempt."""

from __future__ import annotations

from dataclasses import replace

from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.model.events.attempts import JobEnded, JobRequeued
from controller.core.model.job import NEVER, Job
from wire.job.gangs import MemberFailure
from wire.job.health import HealthAction
from wire.job.start_conditions import OnNodeLost, RestartWhen
from wire.names import JobState, Reason
from wire.text import duration

HARDWARE_ENDS = (Reason.NODE_LOST, Reason.SUPERVISOR_LOST, Reason.GPU_FAILED)
"""Reasons for the end of an attempt that have nothing to do with the program. After such an end, a restart
policy ignores the exit code.
"""
_MOVE_FAILURES = (*HARDWARE_ENDS, Reason.LAUNCH_FAILED, Reason.MEMBER_FAILED)
_CAN_REQUEUE = (OnNodeLost.REQUEUE, OnNodeLost.MANUAL)


def after_attempt(job: Job, ended: JobEnded, idling: IdlePolicy) -> JobEnded | JobRequeued:
    """Return the event to record at the end of an attempt. It is a requeue, an end with another reason, or
    the event `ended` unchanged.

    The first rule that applies decides. Without such a rule, the job ends with `ended`.

    1. The job was stopped because of a taint or a requeue command: queue the job again.
    2. The GPU of the job was in use by other processes, or the host could start no job: queue the job again,
       and place no jobs on this GPU or node for now.
    3. The job was being stopped to be queued again, but its hardware failed first: queue the job again.
    4. The node of the job was lost, and its `on_node_lost` allows a requeue: queue the job again.
    5. The job was moved to other nodes and could not start there: queue the job again.
       undo_move() may return the job to its old nodes.
    6. The job was stopped because its GPUs were idle: `[gpus] idle` decides between a requeue and an end.
    7. The restart policy of the job allows another attempt, or the job was unhealthy and its liveness action
       is "restart": queue the job again.

    Only a requeue by rule 4 or 7 counts against the job's limit of restarts. Every requeue records whether
    the attempt was healthy. After a healthy attempt, the wait before the next restart (backoff) has its
    shortest value again.
    """
    event = (
        _stopped_to_requeue(job, ended)
        or _unfit_host(job, ended)
        or _lost_while_stopping(job, ended)
        or _node_lost(job, ended)
        or _failed_move(job, ended)
        or _idle_gpus(job, ended, idling)
        or restart_after(job, ended)
        or ended
    )
    return replace(event, healthy=was_healthy(job, ended.at)) if isinstance(event, JobRequeued) else event


def was_healthy(job: Job, at: float) -> bool:
    """Return whether the attempt that ended at `at` ran long enough to reset the job's backoff (the delay
    before a restart). The attempt must have run for at least ten times the delay before its start, and for at
    least HEALTHY_RUN_S seconds.

    Example: the first restart is delayed by 1 minute, and the delay doubles with each restart. So the fourth
    restart is delayed by 8 minutes, and the attempt after it is healthy if it ran for at least 80 minutes.
    The next restart is then delayed by 1 minute again.
    """
    if job.started_at is None:
        return False
    return at - job.started_at >= job.spec.restart.healthy_run_s(_backoff_steps(job))


def _backoff_steps(job: Job) -> int:
    """Return the number of restarts since the end of the last healthy attempt."""
    return job.wait.restarts - job.wait.backoff_from


def _stopped_to_requeue(job: Job, ended: JobEnded) -> JobRequeued | None:
    if ended.state is not JobState.FAILED:
        return None
    if job.stopping is Reason.EVICTED:
        return JobRequeued(job.id, ended.at, job.attempt, Reason.EVICTED, f"evicted: {job.stopped_by}")
    if job.stopping is Reason.REQUEUED:
        return JobRequeued(job.id, ended.at, job.attempt, Reason.REQUEUED, f"requeued by {job.stopped_by}")
    return None


def _unfit_host(job: Job, ended: JobEnded) -> JobRequeued | None:
    if ended.reason not in (Reason.GPU_HELD, Reason.NODE_UNFIT) or ended.state is not JobState.FAILED:
        return None
    return JobRequeued(job.id, ended.at, job.attempt, ended.reason, f"queued again: {ended.detail}")


def _lost_while_stopping(job: Job, ended: JobEnded) -> JobRequeued | None:
    """Return the requeue of a job whose hardware failed while it was being preempted, evicted or requeued;
    otherwise None.

    This requeue does not need a restart policy. A job that completed just before its node was lost also runs
    again, because the controller has no report of its end.
    """
    stopping = job.stopping
    if (
        stopping not in (Reason.PREEMPTED, Reason.EVICTED, Reason.REQUEUED)
        or ended.reason not in HARDWARE_ENDS
    ):
        return None
    detail = f"{stopping.value} by {job.stopped_by}, and then lost: {ended.detail}"
    return JobRequeued(job.id, ended.at, job.attempt, ended.reason, detail)


def restarts_left(job: Job) -> bool:
    """Return whether the job has had fewer restarts than its limit allows."""
    limit = job.spec.restart.limit
    return limit is None or job.wait.restarts < limit


def _node_lost(job: Job, ended: JobEnded) -> JobRequeued | None:
    if ended.reason is not Reason.NODE_LOST or job.spec.on_node_lost not in _CAN_REQUEUE:
        return None
    if job.stopping not in (None, Reason.MEMBER_FAILED, Reason.UNHEALTHY):
        return None  # Do not requeue the job, because it was being stopped, for example by a user.
    if not restarts_left(job):
        return None
    return JobRequeued(job.id, ended.at, job.attempt, Reason.NODE_LOST, ended.detail, restart=True)


def _failed_move(job: Job, ended: JobEnded) -> JobRequeued | None:
    move = job.move
    if (
        move is None
        or job.attempt == move.attempt
        or job.started_at is not None
        or job.stopping not in (None, Reason.MEMBER_FAILED)
        or ended.state is not JobState.FAILED
        or ended.reason not in _MOVE_FAILURES
    ):
        return None
    detail = f"could not start on {', '.join(move.to)}: {ended.detail}"
    return JobRequeued(job.id, ended.at, job.attempt, ended.reason, detail)


def _idle_gpus(job: Job, ended: JobEnded, idling: IdlePolicy) -> JobEnded | JobRequeued | None:
    """Return the event for a job that was stopped because its GPUs were idle. The settings of `[gpus]` or of
    its queue choose between a requeue and an end. Return None if the job was stopped for another reason.

    The event is the same if the job's node was lost before the stop was complete.
    """
    if job.stopping is not Reason.IDLE or ended.state is not JobState.FAILED:
        return None
    why = job.stopped_by
    if idling.of(job.spec.queue).reclaim is IdleAction.REQUEUE:
        return JobRequeued(job.id, ended.at, job.attempt, Reason.IDLE, f"queued again: {why}")
    return JobEnded(job.id, ended.at, JobState.CANCELLED, Reason.IDLE, why, ended.code, ended.signal)


def restart_after(job: Job, ended: JobEnded) -> JobRequeued | None:
    """Return the requeue that the restart policy of the job demands. Return None if the policy does not apply
    or no restart is left.
    """
    policy, before = job.spec.restart, job.wait.restarts
    if job.stopping not in (None, Reason.MEMBER_FAILED, Reason.UNHEALTHY):
        # A user, an operator or the scheduler has stopped the job, so the restart policy does not apply.
        return None
    unhealthy = job.stopping is Reason.UNHEALTHY and job.spec.health is not None
    action = job.spec.health.action if unhealthy and job.spec.health is not None else HealthAction.POLICY
    if action is HealthAction.FAIL:
        return None
    if action is not HealthAction.RESTART and not _policy_restarts(job, ended):
        return None
    if not restarts_left(job):
        return None
    delay = policy.delay(0 if was_healthy(job, ended.at) else _backoff_steps(job))
    deadline = job.spec.deadline_at
    if deadline is not None and ended.at + delay + (0.0 if job.limit == NEVER else job.limit) > deadline:
        return None
    count = f"restart {before + 1}" + ("" if policy.limit is None else f" of {policy.limit}")
    after = ended.detail or "it completed"
    detail = f"{count} in {duration(delay)}: {after}" if delay else f"{count}: {after}"
    reason = ended.reason if ended.reason is not Reason.NONE else Reason.NEW
    again_at = ended.at + delay if delay else None
    return JobRequeued(job.id, ended.at, job.attempt, reason, detail, again_at, restart=True)


def _policy_restarts(job: Job, ended: JobEnded) -> bool:
    if job.spec.restart.when is RestartWhen.NEVER and not _restarts_as_gang(job):
        return False
    return _applies(job, ended)


def _applies(job: Job, ended: JobEnded) -> bool:
    policy, as_gang = job.spec.restart, _restarts_as_gang(job)
    if policy.when is RestartWhen.ON_HARDWARE and not (as_gang and ended.state is JobState.FAILED):
        # With the restart policy ON_HARDWARE, only a failed GPU is a reason to restart. The new attempt gets
        # other GPUs, because a failed GPU takes no jobs.
        return ended.reason is Reason.GPU_FAILED
    if ended.state is JobState.COMPLETED:
        return policy.when is RestartWhen.ALWAYS
    if not policy.codes or ended.reason in HARDWARE_ENDS:
        return True
    code = 128 + ended.signal if ended.signal is not None else ended.code
    return code in policy.codes


def _restarts_as_gang(job: Job) -> bool:
    """Return whether the job is a gang in which the failure of one member restarts all members."""
    return len(job.members) > 1 and job.spec.gang.on_failure is MemberFailure.RESTART
