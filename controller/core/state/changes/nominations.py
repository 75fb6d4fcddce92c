"""Applies events about nominations. A nominated job waits until other jobs leave the resources that are kept
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.cluster.node import Node
from controller.core.model.allocation import Allocation
from controller.core.model.events.nominations import (
    MovePlanned,
    MoveUndone,
    PreemptionDropped,
    PreemptionPlanned,
    Victim,
)
from controller.core.model.job import Job, Move
from controller.core.state.state import State
from wire.names import JobState, Reason


def _preemption_planned(state: State, event: PreemptionPlanned) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    job.claim, job.claim_quality, job.stop_by = event.allocations, event.quality, event.by
    job.claim_from = event.victims
    if event.victims:
        job.reason = Reason.PREEMPTING
    for victim in event.victims:
        if not victim.nodes:
            state.jobs[victim.job].yields_to += (job.id,)
    for allocation in event.allocations:
        state.nodes.claim(job.id, allocation, event.leaving(allocation.node))
        if job.ask.part.social:
            # Count the job as running on the node already. Otherwise a job could start there although the
            # anti-affinity of the nominated job forbids this.
            state.nodes.job_affinity.add(job.ask.part, allocation.node)
    state.claims[job.id] = None
    state.licences.take(job.ask.licences)
    state.add_release(job)


def unclaim(state: State, job: Job) -> None:
    """Withdraw the nomination of the job. The resources are then no longer kept for the job."""
    if not job.unended:
        # A nominated job that waits gives up its licences and its expected end. A job that still runs,
        # because it is being moved, keeps both.
        state.remove_release(job)
        state.licences.release(job.ask.licences)
        job.stop_by = None
    for allocation in job.claim:
        heirs = departing_jobs(state, state.nodes.by_name[allocation.node], without=job.id)
        state.nodes.unclaim(job.id, allocation.node, heirs)
        if job.ask.part.social:
            state.nodes.job_affinity.remove(job.ask.part, allocation.node)
    job.claim, job.claim_from, job.claim_quality = (), (), 0
    del state.claims[job.id]


def departing_jobs(state: State, node: Node, without: int = 0) -> dict[int, int]:
    """Return which nominated job gets the allocation of each victim on this node, as {victim id: nominated
    job id}. A victim is a running job that must leave the node.

    A victim may leave for several nominated jobs. The first nominated job in this order gets the allocation:
    1. A job for which an elastic victim gives up only some of its nodes. Such nominations are always older
       than the nominations of case 2.
    2. A job for which the victim is stopped on all nodes, the lowest id first.
    3. The victim itself, if it is being moved to other nodes.

    The nomination of the job `without` is ignored.
    """
    named = [
        (bool(claimant.running), not victim.nodes, claimant.id, victim.job)
        for claimant in [state.jobs[each] for each in node.claims if each != without]
        for victim in claimant.claim_from
        if (not victim.nodes or node.name in victim.nodes)
        and victim.job in node.held
        and state.jobs[victim.job].attempt == victim.attempt
    ]
    found: dict[int, int] = {}
    for _, _, claimant, victim in sorted(named):
        found.setdefault(victim, claimant)
    return found


def _preemption_dropped(state: State, event: PreemptionDropped) -> None:
    job = state.jobs[event.job]
    if job.claim:
        unclaim(state, job)
    if job.state is JobState.QUEUED:
        job.reason = Reason.NEW
        state.enqueue(job)


def _move_planned(state: State, event: MovePlanned) -> None:
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


def _keep_place(state: State, job: Job, allocations: tuple[Allocation, ...], quality: int) -> None:
    """Keep the allocations to which a job is moved until the job starts there. Resources that the job already
    holds are not counted twice.
    """
    job.claim, job.claim_quality = allocations, quality
    job.claim_from = (Victim(job.id, 0.0, job.attempt),)
    for allocation in allocations:
        state.nodes.claim(job.id, allocation, [job.id])
        if job.ask.part.social:
            state.nodes.job_affinity.add(job.ask.part, allocation.node)
    state.claims[job.id] = None
    if not job.unended:
        state.licences.take(job.ask.licences)


def _move_undone(state: State, event: MoveUndone) -> None:
    job = state.jobs[event.job]
    if job.claim:
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
    """Let the next scheduling cycle start a moved job on its new nodes, if the job has left its old nodes."""
    if job.state is JobState.QUEUED:
        job.reason, job.stop_by = Reason.MOVING, at
        state.add_release(job)
        state.nodes.claims_to_check.add(job.id)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    PreemptionPlanned: _preemption_planned,
    PreemptionDropped: _preemption_dropped,
    MovePlanned: _move_planned,
    MoveUndone: _move_undone,
}
