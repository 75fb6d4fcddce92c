"""Applies events about waiting jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.model.events.queued import (
    DeadlineAtRisk,
    DependencyDecided,
    GateClosed,
    GateOpened,
    JobEdited,
    JobHeld,
    JobPromoted,
    JobQueued,
    JobRelaxed,
    JobReleased,
    PriorityInherited,
    StartEstimated,
    WaitAlarmed,
)
from controller.core.model.job import Job
from controller.core.model.request import without_relaxed
from controller.core.model.start_estimates import StartEstimate
from controller.core.model.wait_state import NEVER_WAITED, Wait, with_gate, without_gate
from controller.core.state.state import State
from wire.job.spec import JobSpec
from wire.names import Reason


def _job_queued(state: State, event: JobQueued) -> None:
    job = Job(
        id=event.job,
        spec=event.spec,
        user=event.user,
        ask=state.ask(event.spec, event.user),
        submitted_at=event.at,
        key=event.key,
        array=event.array,
        index=event.index,
        held=event.spec.hold,
        from_queue=event.from_queue,
        wait=Wait(event.gates, met=event.met, lost=event.lost) if event.gates else NEVER_WAITED,
        reason=Reason.HELD if event.spec.hold else Reason.NEW,
        replica=event.replica,
        workload=event.workload,
        task=event.task,
    )
    state.index(job)
    if event.workload is not None:
        state.workloads.by_id[event.workload].tasks[event.task].add(job.id)
    state.accounts.add_queued(job)
    state.shares.add_job(state.tenant(job))
    if state.nodes.demand.add(job.ask.part):
        state.nodes.revalue()
    if job.ready:
        state.enqueue(job)


def _job_held(state: State, event: JobHeld) -> None:
    job = state.jobs[event.job]
    job.held, job.reason = True, Reason.HELD
    job.operator_hold = event.by if event.operator else ""
    # A job that is being preempted is not in the queue yet, so `remove` does nothing. The hold takes effect
    # when the job is queued again.
    state.queue.remove(job.id)


def _job_released(state: State, event: JobReleased) -> None:
    job = state.jobs[event.job]
    job.held, job.reason, job.operator_hold = False, Reason.NEW, ""
    admit(state, job, event.at)


def _job_edited(state: State, event: JobEdited) -> None:
    job = state.jobs[event.job]
    moves = (event.spec.project, event.spec.queue) != (job.spec.project, job.spec.queue)
    needed = job.latest_start, job.ask
    state.queue.remove(job.id)
    if moves:
        state.accounts.remove_queued(job)
        state.shares.remove_job(state.tenant(job))
    if job.unended and "time_limit_s" in event.changed:
        _extend_limit(state, job, event.spec)
    job.spec, job.from_queue = event.spec, event.from_queue
    state.assign_profile(job)
    if moves:
        state.accounts.add_queued(job)
        state.shares.add_job(state.tenant(job))
    spec = without_relaxed(event.spec, job.from_queue) if job.wait.relaxed else event.spec
    ask = state.ask(spec, job.user)
    if ask != job.ask:
        job.ask = ask
        if state.nodes.demand.add(ask.part):
            state.nodes.revalue()
    # Keep the warning that the job may miss its deadline (`doubted`) if its latest start and its request are
    # unchanged. If not, remove the warning; the next scheduling cycle decides again.
    doubted = job.wait.doubted and needed == (job.latest_start, job.ask)
    job.wait = replace(job.wait, gates=event.gates, met=event.met, lost=event.lost, doubted=doubted)
    if job.ready:
        state.enqueue(job)


def _extend_limit(state: State, job: Job, spec: JobSpec) -> None:
    """Give a running job the longer time limit of `spec`, so that all scheduling plans use its later end."""
    state.remove_release(job)
    job.spec, job.short, job.limit_raised = spec, None, True
    state.add_release(job)
    state.accounts.follow_limit(job)
    # Increase the versions, because plans that assumed the earlier end of the job are no longer valid.
    state.nodes.room_version += 1
    state.nodes.status_version += 1


def _job_relaxed(state: State, event: JobRelaxed) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    job.ask = state.ask(without_relaxed(job.spec, job.from_queue), job.user)
    job.wait = replace(job.wait, relaxed=True)
    state.enqueue(job)


def _job_promoted(state: State, event: JobPromoted) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    promoted = event.priority - job.spec.priority
    job.wait = replace(job.wait, promoted=promoted, promoted_at=event.at)
    state.enqueue(job)


def _priority_inherited(state: State, event: PriorityInherited) -> None:
    job = state.jobs[event.job]
    before = job.priority
    job.wait = replace(job.wait, inherited=event.priority)
    if job.ready and job.priority != before:
        state.queue.remove(job.id)
        state.enqueue(job)


def _deadline_at_risk(state: State, event: DeadlineAtRisk) -> None:
    job = state.jobs[event.job]
    job.wait = replace(job.wait, doubted=event.doubted)


def _wait_alarmed(state: State, event: WaitAlarmed) -> None:
    job = state.jobs[event.job]
    job.wait = replace(job.wait, alarmed=True)


def _start_estimated(state: State, event: StartEstimated) -> None:
    job = state.jobs[event.job]
    job.foreseen = (*job.foreseen, StartEstimate(event.kind, event.at, event.start))


def _dependency_decided(state: State, event: DependencyDecided) -> None:
    job = state.jobs[event.job]
    if event.met:
        job.wait = replace(job.wait, met=(*job.wait.met, event.index))
    else:
        job.wait = replace(job.wait, lost=(*job.wait.lost, event.index))


def _gate_closed(state: State, event: GateClosed) -> None:
    job = state.jobs[event.job]
    job.wait = replace(job.wait, gates=with_gate(job.wait.gates, event.gate))
    state.queue.remove(job.id)


def _gate_opened(state: State, event: GateOpened) -> None:
    job = state.jobs[event.job]
    job.wait, job.detail = replace(job.wait, gates=without_gate(job.wait.gates, event.gate)), ""
    admit(state, job, event.at)


def admit(state: State, job: Job, now: float) -> None:
    """Put the job into the queue, and record the time `now`. If the job is nominated and no gate is closed,
    let the next scheduling cycle check its nomination instead. Do nothing if the job is held or a gate is
    closed. A closed gate is a reason to wait, such as a dependency.
    """
    if job.ready:
        job.wait = replace(job.wait, ready_at=now)
        state.enqueue(job)
    elif job.claim and not job.wait.gates:
        state.nodes.claims_to_check.add(job.id)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    JobQueued: _job_queued,
    JobHeld: _job_held,
    JobReleased: _job_released,
    DependencyDecided: _dependency_decided,
    JobEdited: _job_edited,
    JobRelaxed: _job_relaxed,
    JobPromoted: _job_promoted,
    DeadlineAtRisk: _deadline_at_risk,
    WaitAlarmed: _wait_alarmed,
    StartEstimated: _start_estimated,
    PriorityInherited: _priority_inherited,
    GateClosed: _gate_closed,
    GateOpened: _gate_opened,
}
