"""The reasons to move jobs: room for one that waits, a node that drains, free GPUs together, even loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from controller.core.columns import ABSENT, Bools, Columns, Floats, Ints
from controller.core.events import Allocation
from controller.core.jobs import NEVER, Job
from controller.core.movers import Movers
from controller.core.nodes import Nodes
from controller.core.placement import Place
from controller.core.preemption import Leavers
from controller.core.proposals import DEFRAGMENT, DRAIN, LOAD, Proposal, Relocation, Spread
from controller.core.shadow import cast_shadow
from wire.words import WHOLE_GPU

MOST_NODES = 64
"""Nodes tried for gathering what is free."""
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
    before, after = _spreads(state.nodes, moves, place.allocations)
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
        moves = _all_movable(movers, movers.on(node.name, now)[:most], None, now)
        movers.let_go()
        costs = accumulate(move.gpu_hours for move in moves)
        moves = [move for move, cost in zip(moves, costs, strict=True) if cost <= movers.rules.max_gpu_hours]
        if not moves:
            continue
        horizon = now + movers.rules.horizon_s
        ends = {move.job: min(state.jobs[move.job].expected_end, horizon) for move in moves}
        worth = sum(_gpus(move.origin) * max(0.0, ends[move.job] - move.until) for move in moves) / _HOUR
        over = max(state.jobs[job].expected_end for job in node.held)
        before, after = _spreads(state.nodes, moves)
        until = max(move.until for move in moves)
        rest = len(node.held) - len(moves)
        earlier = over - until if over < NEVER and not rest else None
        yield Proposal(
            DRAIN, tuple(moves), before, after, worth, node=node.name, earlier_s=earlier, rest=rest
        )


def gathering(movers: Movers, most: int, now: float) -> Iterator[Proposal]:
    """Empty the node where that moves least, for whoever comes next: what is free then lies together."""
    state, columns = movers.state, movers.state.nodes.columns
    taken = _taken(columns)
    partly = [row for row in np.argsort(taken, kind="stable").tolist() if taken[row] and columns.open[row]]
    for row in partly[:MOST_NODES]:
        node = state.nodes.rows[row]
        jobs = movers.on(node.name, now)
        if len(jobs) < len(node.held) or len(jobs) > most or node.claims:
            continue
        barred = taken == 0  # else it would only be exchanged for another
        barred[row] = True
        moves = _all_movable(movers, jobs, barred, now)
        movers.let_go()
        if len(moves) < len(jobs):
            continue
        before, after = _spreads(state.nodes, moves)
        worth = (after.whole_gpus - before.whole_gpus) * movers.rules.gathered_hours
        proposal = Proposal(DEFRAGMENT, tuple(moves), before, after, worth, node=node.name)
        if worth > 0 and proposal.pays(movers.rules):
            yield proposal
            return


def levelling(movers: Movers, most: int, now: float) -> Iterator[Proposal]:
    """Take from the node with the highest load and give to others, as long as that evens them out."""
    nodes, columns = movers.state.nodes, movers.state.nodes.columns
    if int(columns.open.sum()) < 2:
        return
    used = _Load(columns)
    before = used.gap
    row = used.highest
    if before <= movers.rules.load_gap:
        return
    moves: list[Relocation] = []
    for job in movers.on(nodes.rows[row].name, now):
        if len(moves) >= most or used.gap <= movers.rules.load_gap:
            break
        loads = used.loads
        move = movers.move(job, now, loads > (loads[row] + loads[columns.open].min()) / 2)
        if move is None:
            continue
        lighter = used.after(nodes, move)
        if lighter.gap < used.gap:
            used = lighter
            moves.append(move)
    movers.let_go()
    if moves:
        spreads = _spreads(nodes, moves)
        name = nodes.rows[row].name
        yield Proposal(LOAD, tuple(moves), *spreads, worth=0.0, node=name, gap=(before, used.gap))


class _Load:
    """How much of what each node has is given out, by what is scarcest there."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.loads: Floats = _loads(columns)

    @property
    def highest(self) -> int:
        """The open node with the highest load; among equals the first name."""
        return int(np.where(self._columns.open, self.loads, -1.0).argmax())

    @property
    def gap(self) -> float:
        """Between the highest and the lowest."""
        of_open = self.loads[self._columns.open]
        return float(of_open.max() - of_open.min())

    def after(self, nodes: Nodes, move: Relocation) -> _Load:
        """The same when that job has moved."""
        columns = self._columns
        moved = replace(
            columns,
            cpu_free=columns.cpu_free.copy(),
            memory_free=columns.memory_free.copy(),
            gpu_free=_gpus_after(nodes, columns.gpu_free, [move]),
        )
        for sign, allocations in ((1, move.origin), (-1, move.target)):
            for each in allocations:
                row = nodes.by_name[each.node].row
                moved.cpu_free[row] += sign * each.cpu_milli
                moved.memory_free[row] += sign * each.memory_mib
        return _Load(moved)


def _loads(columns: Columns) -> Floats:
    present = (columns.gpu_free != ABSENT).sum(axis=1) * WHOLE_GPU
    parts = [
        1 - columns.cpu_free / np.maximum(1, columns.cpu_total),
        1 - columns.memory_free / np.maximum(1, columns.memory_total),
        _taken(columns) / np.maximum(1, present),
    ]
    loads: Floats = np.max(parts, axis=0)
    return loads


def _taken(columns: Columns) -> Ints:
    """GPU-milli given out, by node."""
    taken: Ints = np.where(columns.gpu_free == ABSENT, 0, WHOLE_GPU - columns.gpu_free).sum(axis=1)
    return taken


def _all_movable(movers: Movers, jobs: Sequence[Job], barred: Bools | None, now: float) -> list[Relocation]:
    """Another place for each of these for which there is one."""
    return [move for job in jobs if (move := movers.move(job, now, barred)) is not None]


def _gpus(allocations: Iterable[Allocation]) -> float:
    return sum(hold.milli for each in allocations for hold in each.gpus) / WHOLE_GPU


def _spreads(
    nodes: Nodes, moves: list[Relocation], place: tuple[Allocation, ...] = ()
) -> tuple[Spread, Spread]:
    """How what is free lies before, and when all is done."""
    columns = nodes.columns
    before = columns.gpu_free
    return _spread(columns, before), _spread(columns, _gpus_after(nodes, before, moves, place))


def _gpus_after(
    nodes: Nodes, gpu_free: Ints, moves: list[Relocation], place: tuple[Allocation, ...] = ()
) -> Ints:
    after: Ints = gpu_free.copy()
    for sign, allocations in (
        *((1, move.origin) for move in moves),
        *((-1, move.target) for move in moves),
        (-1, place),
    ):
        for each in allocations:
            node = nodes.by_name[each.node]
            for hold in each.gpus:
                slot = node.slots.get(hold.uuid)
                if slot is not None and after[node.row, slot] != ABSENT:
                    after[node.row, slot] += sign * hold.milli
    return after


def _spread(columns: Columns, gpu_free: Ints) -> Spread:
    there = (gpu_free != ABSENT) & columns.open[:, None]
    whole = there & (gpu_free == WHOLE_GPU)
    nobody = whole.sum(axis=1) == there.sum(axis=1)
    return Spread(int(gpu_free[there].sum()), int(whole.sum()), int(whole[nobody].sum()))
