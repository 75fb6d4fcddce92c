"""Why jobs are moved that others need: room for one that waits, and a node that drains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np

from controller.core.columns import Bools
from controller.core.events import Allocation
from controller.core.jobs import NEVER, Job
from controller.core.movers import Movers
from controller.core.nodes import Nodes
from controller.core.placement import Place
from controller.core.preemption import Leavers
from controller.core.proposals import DEFRAGMENT, DRAIN, Proposal, Relocation
from controller.core.shadow import cast_shadow
from controller.core.spreads import spreads
from wire.words import WHOLE_GPU

_HOUR = 3_600.0


def making_room(movers: Movers, job: Job, most: int, now: float) -> Iterator[Proposal]:
    """Move those that lose least so that a waiting job can start there, if all find another place."""
    shape = movers.placer.shape(job.ask)
    if shape is None:
        return
    nodes, barred = movers.state.nodes, movers.barred(job, shape, now)
    search = movers.search(now)
    for _ in movers.tries():
        found = search.find(job, shape, now, barred)
        if found is None or not found[1]:
            break
        place, leavers = found
        if len(leavers) > most:
            barred = _without_fullest(nodes, place, leavers, barred)
            continue
        moves, stuck = _moved_away(movers, job, place, leavers, now)
        if stuck is None:
            proposal = _for(movers, job, place, moves, now)
            if proposal is not None:
                yield proposal
            break
        movers.give_up(movers.state.jobs[stuck], now)
    movers.begin_anew(now)


def _moved_away(
    movers: Movers, job: Job, place: Place, leavers: Iterable[int], now: float
) -> tuple[list[Relocation], int | None]:
    """Where all of them go, the biggest first; or the one for whom there is no place."""
    jobs = movers.state.jobs
    victims = sorted(leavers, key=lambda each: (-jobs[each].gpu_milli, each))
    moves = []
    movers.keep(job.id, place, victims)
    try:
        for victim in victims:
            move = movers.move(jobs[victim], now)
            if move is None:
                return [], victim
            moves.append(move)
    finally:
        movers.let_go()
    return moves, None


def _without_fullest(nodes: Nodes, place: Place, leavers: Leavers, barred: Bools | None) -> Bools:
    """Not on the node where most would have to leave: they are too many."""
    names = [allocation.node for allocation in place.allocations]
    fullest = max(names, key=lambda name: sum(job in nodes.by_name[name].held for job in leavers))
    barred = np.zeros(len(nodes), dtype=np.bool_) if barred is None else barred.copy()
    barred[nodes.by_name[fullest].row] = True
    return barred


def _for(movers: Movers, job: Job, place: Place, moves: list[Relocation], now: float) -> Proposal | None:
    """The whole proposal; None if the job starts as early without it."""
    state, horizon = movers.state, now + movers.rules.horizon_s
    promise = cast_shadow(state, movers.placer, job.ask, job.id, now)
    until = max(move.until for move in moves)
    at = NEVER if promise is None else promise.at
    otherwise = min(at, horizon)
    if otherwise <= until:
        return None
    gpus = sum(hold.milli for each in place.allocations for hold in each.gpus) / WHOLE_GPU
    before, after = spreads(state.nodes, moves, place.allocations)
    return Proposal(
        DEFRAGMENT,
        tuple(moves),
        before,
        after,
        worth=gpus * (otherwise - until) / _HOUR,
        for_job=job.id,
        place=place.allocations,
        quality=place.quality,
        earlier_s=None if at == NEVER else at - until,
    )


def draining(movers: Movers, most: int, now: float) -> Iterator[Proposal]:
    """Move what runs on nodes that take no new work, as much of it as there is room for elsewhere."""
    state = movers.state
    for node in state.nodes.rows:
        if not (node.drained and node.up and node.held):
            continue
        moves = movers.move_all(movers.on(node.name, now)[:most], now)
        movers.let_go()
        costs = accumulate(move.gpu_hours for move in moves)
        moves = [move for move, cost in zip(moves, costs, strict=True) if cost <= movers.rules.max_gpu_hours]
        if not moves:
            continue
        horizon = now + movers.rules.horizon_s
        ends = {move.job: min(state.jobs[move.job].expected_end, horizon) for move in moves}
        worth = sum(_gpus(move.origin) * max(0.0, ends[move.job] - move.until) for move in moves) / _HOUR
        over = max(state.jobs[job].expected_end for job in node.held)
        before, after = spreads(state.nodes, moves)
        until = max(move.until for move in moves)
        rest = len(node.held) - len(moves)
        earlier = over - until if over < NEVER and not rest else None
        yield Proposal(
            DRAIN, tuple(moves), before, after, worth, node=node.name, earlier_s=earlier, rest=rest
        )


def _gpus(allocations: Iterable[Allocation]) -> float:
    return sum(hold.milli for each in allocations for hold in each.gpus) / WHOLE_GPU
