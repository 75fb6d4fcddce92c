"""Routes of rebalancing (moving running jobs to other nodes): show and carry out proposals."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.api.views.resources import held_view, moved_view
from controller.core.model.inputs import policy_inputs
from controller.core.rebalance.proposals import FreeGpuLayout, Proposal
from controller.core.rebalance.rebalancer import move_history
from controller.core.state.state import State
from wire.api.policy.rebalance import (
    MoveView,
    ProposalView,
    Rebalanced,
    RebalanceRequest,
    RebalanceView,
    SpreadView,
)

MOST = 100
"""The most earlier moves that one answer lists."""


async def show(call: Call) -> RebalanceView:
    """Show the proposed moves of running jobs with their costs and benefits, and the latest moves."""
    await call.daemon.settled()
    engine = call.daemon.engine
    found = engine.rebalancer.proposals(call.daemon.now())
    history = move_history(engine.state.jobs.values(), MOST)
    return RebalanceView(
        engine.rebalancer.rules.mode,
        tuple(_view(engine.state, each) for each in found),
        tuple(moved_view(job, job.moves[index]) for job, index in history),
        call.daemon.seq,
    )


async def run(call: Call, request: RebalanceRequest) -> Rebalanced:
    """Carry out one proposal to move jobs, or all valid proposals. Return the jobs that move."""
    moved = await call.ask(policy_inputs.Rebalance(call.caller.user, request.proposal))
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
        tuple(held_view(state, part) for part in each.target),
        each.node,
        each.rest,
        each.earlier_s,
        each.gap,
    )


def _spread(spread: FreeGpuLayout) -> SpreadView:
    return SpreadView(spread.free_gpus, spread.whole_gpus, spread.fragmentation)
