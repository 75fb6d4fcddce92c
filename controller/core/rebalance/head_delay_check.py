"""Checks, on a copy of the state, that the moves of a proposal do not delay the first waiting job."""

from __future__ import annotations

from bisect import insort
from collections import ChainMap
from copy import copy

from controller.core.backfill.easy.easy_reservation import earliest_reservation
from controller.core.framework.interfaces import Backfill, Reserves
from controller.core.model.job import NEVER, Job, Member
from controller.core.placement.placer import Placer
from controller.core.rebalance.proposals import Proposal
from controller.core.state.state import State

ROUNDING_S = 1e-6


def keeps_head_start(
    state: State, placer: Placer, mode: Backfill, first: Job, proposal: Proposal, now: float
) -> bool:
    """Return whether the guaranteed start of the first waiting job `first` is not later after the moves of
    the proposal than without them.

    If the backfill `mode` makes no reservation, the result is True. If it makes reservations for several
    jobs, or starts no job behind the first one, the result is False.
    """
    if mode.reserves is Reserves.NO_JOB:
        # With this kind of backfill, the first waiting job has no guaranteed start that moves could delay.
        return True
    if not mode.starts_behind or mode.reserves is Reserves.ALL_JOBS:
        return False
    before = earliest_reservation(state, placer, first.ask, first.id, now)
    if before is None or before.starts_at == NEVER:
        return True
    ahead = state_after(state, proposal)
    after = earliest_reservation(ahead, Placer(ahead.nodes, placer.pipeline), first.ask, first.id, now)
    return after is not None and after.starts_at <= before.starts_at + ROUNDING_S


def state_after(state: State, proposal: Proposal) -> State:
    """Return a copy of the state as it is after the moves of a proposal.

    In the copy, all moved jobs start on their new nodes at `Proposal.until`, when the last of them has left
    its old nodes.
    """
    ahead = copy(state)
    ahead.nodes = state.nodes.copy()
    moved: dict[int, Job] = {}
    gone = {move.job for move in proposal.moves}
    ahead.releases = [each for each in state.releases if each[1] not in gone]
    for move in proposal.moves:
        ahead.nodes.free(move.job, [allocation.node for allocation in move.origin])
    placed = [(move.job, move.target) for move in proposal.moves]
    if proposal.for_job is not None:
        placed.append((proposal.for_job, proposal.target))
        ahead.licences = state.licences.copy()
        ahead.licences.take(state.jobs[proposal.for_job].ask.licences)
    for number, allocations in placed:
        job = moved[number] = copy(state.jobs[number])
        job.set_members({allocation.node: Member(allocation) for allocation in allocations})
        job.placed_at, job.started_at, job.stop_by = proposal.until, None, None
        ahead.nodes.hold(number, allocations)
        insort(ahead.releases, (job.expected_end, number))
    ahead.jobs = ChainMap(moved, state.jobs)  # type: ignore[assignment]
    return ahead
