"""What events make of room that is kept for a job until others are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core import events
from controller.core.claims import leavers
from controller.core.jobs import Job, Move
from controller.core.state import State
from wire.words import JobState, Reason


def _preemption_planned(state: State, event: events.PreemptionPlanned) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    job.claim, job.claim_quality, job.stop_by = event.allocations, event.quality, event.by
    job.claim_from = event.victims
    job.reason = Reason.PREEMPTING
    for victim in event.victims:
        if not victim.nodes:
            state.jobs[victim.job].yields_to += (job.id,)
    for allocation in event.allocations:
        state.nodes.claim(job.id, allocation, event.leaving(allocation.node))
        if job.ask.part.social:  # as if it were there: nobody comes meanwhile whom it refuses
            state.nodes.company.enter(job.ask.part, allocation.node)
    state.claims[job.id] = None
    state.licences.take(job.ask.licences)
    state.expect(job)


def unclaim(state: State, job: Job) -> None:
    """Nothing is kept for the job any more, if anything was."""
    if not job.claim:
        return
    if not job.unended:  # else it is being moved, and still holds what it held before
        state.unexpect(job)
        state.licences.give(job.ask.licences)
        job.stop_by = None
    for allocation in job.claim:
        heirs = leavers(state, state.nodes.by_name[allocation.node], without=job.id)
        state.nodes.unclaim(job.id, allocation.node, heirs)
        if job.ask.part.social:
            state.nodes.company.leave(job.ask.part, allocation.node)
    job.claim, job.claim_from, job.claim_quality = (), (), 0
    del state.claims[job.id]


def _preemption_dropped(state: State, event: events.PreemptionDropped) -> None:
    job = state.jobs[event.job]
    unclaim(state, job)
    if job.state is JobState.QUEUED:
        job.reason = Reason.NEW
        state.enqueue(job)


def _move_planned(state: State, event: events.MovePlanned) -> None:
    job = state.jobs[event.job]
    origin = tuple(member.allocation for member in job.running)
    to = tuple(allocation.node for allocation in event.allocations)
    job.moves += (
        Move(
            event.proposal,
            event.kind,
            event.at,
            event.attempt,
            origin,
            job.quality or 0,
            to,
            event.gpu_hours,
            event.for_job,
            event.node,
        ),
    )
    _keep_place(state, job, event.allocations, event.quality)


def _keep_place(state: State, job: Job, allocations: tuple[events.Allocation, ...], quality: int) -> None:
    """The job starts there next. What it still holds on the same nodes does not count twice."""
    job.claim, job.claim_quality = allocations, quality
    job.claim_from = (events.Victim(job.id, 0.0, job.attempt),)
    for allocation in allocations:
        state.nodes.claim(job.id, allocation, [job.id])
        if job.ask.part.social:
            state.nodes.company.enter(job.ask.part, allocation.node)
    state.claims[job.id] = None
    if not job.unended:
        state.licences.take(job.ask.licences)


def _move_undone(state: State, event: events.MoveUndone) -> None:
    job = state.jobs[event.job]
    unclaim(state, job)
    job.moves = (*job.moves[:-1], replace(job.moves[-1], undone=event.why))
    if event.allocations:
        state.queue.remove(job.id)
        _keep_place(state, job, event.allocations, job.moves[-1].quality)
        wait_for_place(state, job, event.at)
    elif job.state is JobState.QUEUED:
        job.reason, job.detail = Reason.NEW, f"was not moved: {event.why}"
        state.enqueue(job)


def wait_for_place(state: State, job: Job, at: float) -> None:
    """A job that has ended where it was starts in the place that is kept for it when a cycle looks next."""
    if job.state is JobState.QUEUED:
        job.reason, job.stop_by = Reason.MOVING, at
        state.expect(job)
        state.nodes.stirred.add(job.id)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    events.PreemptionPlanned: _preemption_planned,
    events.PreemptionDropped: _preemption_dropped,
    events.MovePlanned: _move_planned,
    events.MoveUndone: _move_undone,
}
