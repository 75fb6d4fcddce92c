"""Applies events about attempts, from the placement to the end of the attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from controller.core.cluster.licences import holds_licences
from controller.core.estimates.runtime_prediction import LEARNT_ENDS
from controller.core.estimates.service_rates import present_run_s, run_s_before
from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    CheckpointSaved,
    EndWarned,
    GpuFaultNoted,
    HealthChanged,
    IdleEnded,
    IdleKept,
    IdleNoted,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    JobShrunk,
    MemberReady,
    MembersExited,
    MembersStarted,
    PredictionOutlived,
    StepsRecorded,
    StopRequested,
)
from controller.core.model.job import Job, LastAttempt, Member, newest_checkpoint
from controller.core.model.wait_state import with_gate
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE
from controller.core.state.changes.nominations import unclaim, wait_for_place
from controller.core.state.changes.queued import admit
from controller.core.state.state import State
from wire.job.datasets import parse_dataset
from wire.names import JobState, Reason

_RATED = 100_000
"""When the state has the times of twice this many preemptions, the oldest half is deleted. The rate limit of
preemption needs only the times of the last `window_s` seconds.
"""
_ENDING = {None: Reason.NONE, Reason.PREEMPTED: Reason.GRACE}
"""The `reason` that a job gets when it starts to run, by the reason of its stop order; None: no stop order.
With any other stop order the reason is CANCELLING.
"""


def _stop_charging(state: State, job: Job, at: float) -> None:
    """Stop charging the tenant of the job's user, because the whole attempt has ended."""
    if job.placed_at is not None:
        state.shares.change_rate(state.tenant(job), -job.charge, at)
        job.charge = 0.0


def _job_placed(state: State, event: JobPlaced) -> None:
    job = state.jobs[event.job]
    if job.claim:
        unclaim(state, job)
    job.change_state(JobState.SCHEDULED, Reason.STARTING)
    state.queue.remove(job.id)
    job.attempt, job.quality, job.placed_at = event.attempt, event.quality, event.at
    job.profile = event.profile
    job.predicted_s, job.planned_s, job.short = event.predicted_s, event.planned_s, event.short
    if job.foreseen:
        state.estimates.score_starts(job, event.at)
    # Make new Member objects for the new attempt, in which no member has started yet.
    job.members = {allocation.node: Member(allocation) for allocation in event.allocations}
    job.unstarted = job.unended = len(job.members)
    _hold(state, job, event.allocations, event.at)
    state.add_release(job)
    if job.ask.licences:
        state.licences.take(job.ask.licences)
    state.accounts.start(job, event.allocations)


def _prediction_outlived(state: State, event: PredictionOutlived) -> None:
    job = state.jobs[event.job]
    state.remove_release(job)
    job.planned_s, job.outlived = event.planned_s, True
    state.add_release(job)


def _hold(state: State, job: Job, allocations: tuple[Allocation, ...], at: float) -> None:
    """Give the allocations to the job. Charge the tenant of the job's user for them from the time `at` on,
    unless the job's queue is exempt from fair share.
    """
    before = job.charge
    state.nodes.hold(job.id, allocations)
    if job.ask.part.social:
        for allocation in allocations:
            state.nodes.job_affinity.add(job.ask.part, allocation.node)
        # Increase the version, so that requests that did not fit are tried again: a job with affinity to this
        # job may fit now.
        state.nodes.room_version += 1
    rule = state.quotas.rules.queues.get(job.spec.queue)
    if rule is not None and EXEMPT_FAIR_SHARE in rule.exempt:
        return
    for charge in state.shares.sharing.charges(allocations, state.nodes.gpu_models):
        job.charge += charge
    state.shares.change_rate(state.tenant(job), job.charge - before, at)


def _job_grew(state: State, event: JobGrew) -> None:
    job = state.jobs[event.job]
    more = {allocation.node: Member(allocation) for allocation in event.allocations}
    # Make a new dictionary, because start orders that are not sent yet still refer to the old one.
    job.set_members({**job.members, **more})
    _hold(state, job, event.allocations, event.at)
    state.accounts.grow(job, event.allocations)


def _job_shrunk(state: State, event: JobShrunk) -> None:
    job = state.jobs[event.job]
    for node in event.nodes:
        job.members[node].leaving = True
    if event.preempts:
        _count_preemption(state, event.at)


def _count_preemption(state: State, at: float) -> None:
    state.preempted_at.append(at)
    if len(state.preempted_at) > 2 * _RATED:
        del state.preempted_at[:_RATED]


def _member_ready(state: State, event: MemberReady) -> None:
    state.jobs[event.job].members[event.node].ready = True


def _members_started(state: State, event: AttemptStarted | MembersStarted) -> None:
    job, pids = state.jobs[event.job], event.pids
    for node, pid in pids.items():
        member = job.members[node]
        member.started_at, member.pid = event.at, pid
    if state.budgets.counts(job):
        state.budgets.start(job, [job.members[node] for node in pids], event.at)
    job.unstarted -= len(pids)
    if not job.unstarted and job.state is JobState.SCHEDULED:
        _run(state, job, event.at)


def _run(state: State, job: Job, at: float) -> None:
    """Set the job to RUNNING with the start `at`, because each of its members has started or has ended
    without a start.
    """
    job.change_state(JobState.RUNNING, _ENDING.get(job.stopping, Reason.CANCELLING))
    if at == job.placed_at:
        # Keep the entry in `releases`: the job starts at the time of its placement, so its expected end does
        # not change.
        job.started_at = at
    else:
        state.remove_release(job)
        job.started_at = at
        state.add_release(job)
    state.note_elastic(job)
    if job.move is not None and job.attempt > job.move.attempt:
        job.moves = (*job.moves[:-1], replace(job.move, done_at=at))


def _checkpoint_saved(state: State, event: CheckpointSaved) -> None:
    job = state.jobs[event.job]
    job.checkpoint = newest_checkpoint(job.checkpoint, event.checkpoint)


def _members_exited(state: State, event: AttemptExited | MembersExited) -> None:
    job, exits, at = state.jobs[event.job], event.exits, event.at
    members, never_started = job.members, 0
    for node, how in exits.items():
        member = members[node]
        member.ended_at = at
        never_started += member.started_at is None
        member.code, member.signal, member.why = how.code, how.signal, how.why
        member.cpu_s, member.max_rss_mib, member.use = how.cpu_s, how.max_rss_mib, how.use
        member.memory_mib, member.failure = how.memory_mib, how.failure
        if how.checkpoint is not None:
            job.checkpoint = newest_checkpoint(job.checkpoint, how.checkpoint)
    job.unended -= len(exits)
    if never_started:
        job.unstarted -= never_started
        begun = [each.started_at for each in members.values() if each.started_at is not None]
        if begun and not job.unstarted and job.state is JobState.SCHEDULED:
            # The start of the job is the time at which its last member started. Members that ended without a
            # start do not count.
            _run(state, job, max(begun))
    state.nodes.free(job.id, exits)
    if job.ask.part.social:
        for node in exits:
            state.nodes.job_affinity.remove(job.ask.part, node)
    state.accounts.release(job, [members[node].allocation for node in exits], at)
    if job.spec.datasets or state.budgets.counts(job):
        started = [members[node] for node in exits if members[node].started_at is not None]
        state.budgets.stop(job, started, at)
        if job.spec.datasets:
            _note_reads(state, job, started, at)
    if job.ask.licences and not holds_licences(job):
        state.licences.release(job.ask.licences)


def _steps_recorded(state: State, event: StepsRecorded) -> None:
    state.jobs[event.job].members[event.node].steps = event.steps


def _note_reads(state: State, job: Job, members: Iterable[Member], at: float) -> None:
    """Record that these members of the job have read the job's data sets on their nodes."""
    names = [parse_dataset(text)[0] for text in job.spec.datasets]
    for member in members:
        if member.started_at is not None:
            state.nodes.datasets.note(names, member.allocation.node, at - member.started_at, at)


def _idle_noted(state: State, event: IdleNoted) -> None:
    job = state.jobs[event.job]
    job.idle_since, job.idle_until = event.since, event.until
    if job.stopping is None:
        job.reason = Reason.IDLE


def _idle_ended(state: State, event: IdleEnded) -> None:
    job = state.jobs[event.job]
    job.idle_since = job.idle_until = None
    if job.stopping is None:
        job.reason = Reason.NONE


def _idle_kept(state: State, event: IdleKept) -> None:
    job = state.jobs[event.job]
    job.kept_until, job.kept_why = event.until, event.why
    job.idle_since = job.idle_until = None
    if job.reason is Reason.IDLE:
        job.reason = Reason.NONE


def _end_warned(state: State, event: EndWarned) -> None:
    if event.reason is Reason.TIME_LIMIT:
        state.jobs[event.job].warned_end = event.ends_at


def _health_changed(state: State, event: HealthChanged) -> None:
    state.jobs[event.job].healthy = event.healthy


def _stop_requested(state: State, event: StopRequested) -> None:
    job = state.jobs[event.job]
    state.remove_release(job)
    job.stopping, job.stopped_by, job.stop_by = event.reason, event.by, event.until
    state.add_release(job)
    if event.reason is Reason.USER:
        job.reason = Reason.CANCELLING
    elif event.reason is Reason.PREEMPTED:
        job.reason = Reason.MOVING if job.claim else Reason.GRACE
        _count_preemption(state, event.at)


def _job_preempted(state: State, event: JobPreempted) -> None:
    job = state.jobs[event.job]
    job.change_state(JobState.PREEMPTED, Reason.PREEMPTED, f"preempted by {event.by}")
    job.preemptions = (*job.preemptions, event)


def _job_requeued(state: State, event: JobRequeued) -> None:
    job = state.jobs[event.job]
    job.change_state(JobState.QUEUED, event.reason, event.detail)
    state.note_elastic(job)
    state.remove_release(job)
    state.accounts.finish(job, again=True)
    _stop_charging(state, job, event.at)
    state.account(job, event.at)
    job.last = LastAttempt(event.attempt, event.at, event.reason, event.detail, job.failure)
    _learn_service(state, job, event.at, ended=False)
    job.spent_gpu_s += sum(member.gpu_s(0.0, event.at) for member in job.members.values())
    if job.started_at is not None:
        job.spent_run_s += max(0.0, event.at - job.started_at)
    job.spent_wh += sum(member.use.wh for member in job.members.values() if member.use is not None)
    job.set_members({})
    job.started_at = job.placed_at = job.quality = job.predicted_s = job.planned_s = None
    job.foreseen = ()
    state.assign_profile(job)
    job.idle_since = job.idle_until = job.healthy = job.warned_end = None
    job.kept_until, job.kept_why = None, ""
    job.short, job.limit_raised, job.outlived = None, False, False
    job.stopping, job.stopped_by, job.stop_by, job.yields_to = None, "", None, ()
    before = job.wait
    wait = replace(
        before,
        again_at=event.again_at,
        restarts=before.restarts + event.restart,
        backoff_from=before.restarts if event.healthy else before.backoff_from,
    )
    if event.again_at is not None:
        wait = replace(wait, gates=with_gate(wait.gates, Reason.BACKOFF))
    job.wait = wait
    admit(state, job, event.at)
    if job.claim:
        wait_for_place(state, job, event.at)


def _learn_service(state: State, job: Job, at: float, *, ended: bool) -> None:
    """Add the present attempt, which is over, to the statistics of the rates at which jobs end. `ended` is
    False if the job is queued again or was stopped from outside.
    """
    if job.spec.gpus and job.placed_at is not None:
        before_s = run_s_before(job)
        state.service_rates.learn(job.spec.gpus, before_s, before_s + present_run_s(job, at), ended=ended)


def _job_ended(state: State, event: JobEnded) -> None:
    job = state.jobs[event.job]
    job.change_state(event.state, event.reason, event.detail)
    state.note_elastic(job)
    if job.claim:
        unclaim(state, job)
    state.remove_release(job)
    _stop_charging(state, job, event.at)
    job.ended_at, job.code, job.signal = event.at, event.code, event.signal
    job.idle_since = job.idle_until = None
    if job.move is not None:
        job.moves = (*job.moves[:-1], replace(job.move, undone="the job ended before it was moved"))
    state.queue.remove(job.id)
    state.accounts.finish(job, again=False)
    state.estimates.learn(job, event.state, event.reason, event.at, state.pool_units(job))
    ended = event.state is not JobState.CANCELLED and event.reason in LEARNT_ENDS
    _learn_service(state, job, event.at, ended=ended)
    state.shares.remove_job(state.tenant(job))
    state.account(job, event.at)
    state.note_ended(job)
    if job.replica is not None:
        state.drop_replica(job)
    if job.workload is not None:
        state.workloads.count_end(job, event.at)


def _gpu_fault_noted(state: State, event: GpuFaultNoted) -> None:
    member = state.jobs[event.job].members[event.node]
    member.fault, member.own = event.fault, event.own


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    JobPlaced: _job_placed,
    PredictionOutlived: _prediction_outlived,
    MemberReady: _member_ready,
    AttemptStarted: _members_started,
    MembersStarted: _members_started,
    StepsRecorded: _steps_recorded,
    CheckpointSaved: _checkpoint_saved,
    AttemptExited: _members_exited,
    MembersExited: _members_exited,
    IdleNoted: _idle_noted,
    IdleEnded: _idle_ended,
    IdleKept: _idle_kept,
    HealthChanged: _health_changed,
    EndWarned: _end_warned,
    StopRequested: _stop_requested,
    JobShrunk: _job_shrunk,
    JobGrew: _job_grew,
    JobPreempted: _job_preempted,
    JobRequeued: _job_requeued,
    JobEnded: _job_ended,
    GpuFaultNoted: _gpu_fault_noted,
}
