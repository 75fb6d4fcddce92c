"""Rebalancing: what could be moved, and doing it."""

from __future__ import annotations

from controller.api.call import Call
from controller.api.views import held_view, moved_view
from controller.core import inputs
from controller.core.proposals import Proposal, Spread
from controller.core.rebalancing import history_of
from controller.core.state import State
from wire.api.moves import MoveView, ProposalView, Rebalanced, RebalanceRequest, RebalanceView, SpreadView

MOST = 100
"""Moves shown, the latest."""


async def show(call: Call) -> RebalanceView:
    """What could be moved now, each proposal with its cost and benefit, and the latest moves."""
    await call.daemon.settled()
    engine = call.daemon.engine
    found = engine.rebalancing.proposals(call.daemon.now())
    history = history_of(engine.state.jobs.values(), MOST)
    return RebalanceView(
        engine.rebalancing.rules.mode,
        tuple(_view(engine.state, each) for each in found),
        tuple(moved_view(job, job.moves[index]) for job, index in history),
        call.daemon.seq,
    )


async def run(call: Call) -> Rebalanced:
    """Do a proposal, if it still holds, or whatever can be proposed; the answer says who moves."""
    call.need_operator("move jobs")
    asked: RebalanceRequest = call.body
    moved = await call.ask(inputs.Rebalance(call.caller.user, asked.proposal))
    jobs = call.daemon.state.jobs
    return Rebalanced(tuple(moved_view(jobs[job], jobs[job].moves[-1]) for job in moved))


def _view(state: State, each: Proposal) -> ProposalView:
    other = state.jobs.get(each.for_job or 0)
    return ProposalView(
        each.id,
        each.kind,
        tuple(
            MoveView(
                move.job,
                state.jobs[move.job].label,
                state.jobs[move.job].name,
                state.jobs[move.job].user,
                tuple(held_view(state, part) for part in move.origin),
                tuple(held_view(state, part) for part in move.target),
                move.gpu_hours,
            )
            for move in each.moves
        ),
        each.gpu_hours,
        each.worth,
        _spread(each.before),
        _spread(each.after),
        each.for_job,
        "" if other is None else other.label,
        "" if other is None else other.name,
        tuple(held_view(state, part) for part in each.place),
        each.node,
        each.rest,
        each.earlier_s,
        each.gap,
    )


def _spread(spread: Spread) -> SpreadView:
    return SpreadView(spread.free_gpus, spread.whole_gpus, spread.fragmentation)
