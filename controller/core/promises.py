"""Would a proposal keep the first waiting job longer? Asked of a copy in which it is done already."""

from __future__ import annotations

from bisect import insort
from collections import ChainMap
from copy import copy

from controller.core.jobs import NEVER, Job, Member
from controller.core.placement import Placer
from controller.core.plugin import Backfill
from controller.core.proposals import Proposal
from controller.core.shadow import cast_shadow
from controller.core.state import State

SAME_S = 1e-6


def holds_promise(
    state: State, placer: Placer, mode: Backfill, first: Job, proposal: Proposal, now: float
) -> bool:
    """Can the first waiting job start as early as without it?"""
    if mode is Backfill.GREEDY:
        return True  # it is promised nothing
    if mode in (Backfill.NONE, Backfill.CONSERVATIVE):
        return False
    before = cast_shadow(state, placer, first.ask, first.id, now)
    if before is None or before.at == NEVER:
        return True
    ahead = afterwards(state, proposal)
    after = cast_shadow(ahead, Placer(ahead.nodes, placer.pipeline), first.ask, first.id, now)
    return after is not None and after.at <= before.at + SAME_S


def afterwards(state: State, proposal: Proposal) -> State:
    """The state as if everybody were in the new place now, and had begun there when the old one is free."""
    ahead = copy(state)
    ahead.nodes = state.nodes.copied()
    moved: dict[int, Job] = {}
    gone = {move.job for move in proposal.moves}
    ahead.releases = [each for each in state.releases if each[1] not in gone]
    for move in proposal.moves:
        ahead.nodes.free(move.job, [allocation.node for allocation in move.origin])
    places = [(move.job, move.target) for move in proposal.moves]
    if proposal.for_job is not None:
        places.append((proposal.for_job, proposal.place))
        ahead.licences = state.licences.copied()
        ahead.licences.take(state.jobs[proposal.for_job].ask.licences)
    for number, place in places:
        job = moved[number] = copy(state.jobs[number])
        job.seat({allocation.node: Member(allocation) for allocation in place})
        job.placed_at, job.stop_by = proposal.until, None
        ahead.nodes.hold(number, place)
        insort(ahead.releases, (job.expected_end, number))
    ahead.jobs = ChainMap(moved, state.jobs)  # type: ignore[assignment]
    return ahead
