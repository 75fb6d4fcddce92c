"""The strategies of rebalancing. Each strategy proposes moves of running jobs for one purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import numpy as np

from controller.core.backfill.easy.easy_reservation import earliest_reservation
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import ABSENT, Bools
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placement
from controller.core.preemption.victim_search import VacatedNodes
from controller.core.rebalance.balance_load import balance_load
from controller.core.rebalance.move_search import MoveSearch
from controller.core.rebalance.proposals import (
    DEFRAGMENT,
    DRAIN,
    LOAD,
    PlannedMove,
    Proposal,
    gpu_milli_taken,
    layouts,
)
from wire.agent.orders import GpuHold
from wire.names import WHOLE_GPU

MOST_EMPTIED = 64
"""`defragment` tries to empty at most this many nodes, and then at most this many GPUs."""
_HOUR = 3_600.0


def make_room(search: MoveSearch) -> Iterator[Proposal]:
    """Yield proposals that let a waiting job start. A proposal moves running jobs away from the nodes that
    the waiting job will use.

    For each waiting job:
    1. Find a set of running jobs such that the waiting job fits when they have left their nodes. Choose the
       set that loses the least work. Preemption uses the same search.
    2. If the set is too large, exclude the node with most of these jobs, and go to 1.
    3. Find other nodes for each job of the set, the largest job first. If one job fits on no other nodes,
       exclude this job from the search and go to 1.
    4. The gain (`worth`) in GPU-hours is the number of GPUs of the waiting job, times the hours by which the
       moves make its start earlier.
    """
    for job in search.waiting:
        shape = search.placer.shape(job.ask)
        if shape is None:
            continue
        barred = search.barred(job, shape)
        for _ in search.tries():
            found = search.victims.find(job, shape, search.now, barred)
            if found is None or not found[1]:
                break
            placement, leaving = found
            if len(leaving) > search.most:
                barred = _without_fullest(search, placement, leaving, barred)
                continue
            moves, stuck = _move_away(search, job, placement, leaving)
            if stuck is None:
                proposal = _earlier_start(search, job, placement, moves)
                if proposal is not None:
                    yield proposal
                break
            search.leave_out(search.state.jobs[stuck])
        search.next_waiting_job()


def _without_fullest(
    search: MoveSearch, placement: Placement, leaving: VacatedNodes, barred: Bools | None
) -> Bools:
    """Return a copy of `barred` with one more node: the node of `placement` on which most of the jobs in
    `leaving` run. `barred` is True for each node that the waiting job must not use.
    """
    nodes = search.state.nodes
    names = [allocation.node for allocation in placement.allocations]
    fullest = max(names, key=lambda name: sum(job in nodes.by_name[name].held for job in leaving))
    barred = np.zeros(len(nodes), dtype=np.bool_) if barred is None else barred.copy()
    barred[nodes.by_name[fullest].row] = True
    return barred


def _move_away(
    search: MoveSearch, job: Job, placement: Placement, leaving: Iterable[int]
) -> tuple[list[PlannedMove], int | None]:
    """Find other nodes for all running jobs in `leaving`, so that the waiting job `job` can start on
    `placement`.

    Return (moves, None) if all of them fit on other nodes. Otherwise return ([], the id of a running job that
    fits on no other nodes).
    """
    jobs = search.state.jobs
    largest_first = sorted(leaving, key=lambda each: (-jobs[each].gpu_milli, each))
    moves = []
    search.reserve(job.id, placement, largest_first)
    try:
        for number in largest_first:
            move = search.move(jobs[number])
            if move is None:
                return [], number
            moves.append(move)
    finally:
        search.reset()
    return moves, None


def _earlier_start(
    search: MoveSearch, job: Job, placement: Placement, moves: list[PlannedMove]
) -> Proposal | None:
    """Return the proposal to carry out these moves and then start the waiting job on `placement`. Return None
    if the moves do not let the job start earlier.
    """
    state, horizon = search.state, search.now + search.rules.horizon_s
    reservation = earliest_reservation(state, search.placer, job.ask, job.id, search.now)
    until = max(move.until for move in moves)
    at = NEVER if reservation is None else reservation.starts_at
    otherwise = min(at, horizon)
    if otherwise <= until:
        return None
    before, after = layouts(state.nodes, moves, placement.allocations)
    return Proposal(
        DEFRAGMENT,
        tuple(moves),
        before,
        after,
        worth=_gpus(placement.allocations) * (otherwise - until) / _HOUR,
        for_job=job.id,
        target=placement.allocations,
        quality=placement.quality,
        earlier_s=None if at == NEVER else at - until,
    )


def drain_nodes(search: MoveSearch) -> Iterator[Proposal]:
    """Yield proposals that move jobs away from nodes with a drain.

    The moves of one proposal cost at most `max_gpu_hours`. The gain (`worth`) is a sum over the moved jobs:
    the GPUs of a job, times the hours from its move to its expected end, or to the end of `horizon_s` if that
    is earlier.
    """
    state, rules = search.state, search.rules
    for node in state.nodes.rows:
        if not (node.drained and node.up and node.held):
            continue
        moves = search.move_all(search.movable(node.name)[: search.most])
        search.reset()
        costs = accumulate(move.gpu_hours for move in moves)
        moves = [move for move, cost in zip(moves, costs, strict=True) if cost <= rules.max_gpu_hours]
        if not moves:
            continue
        horizon = search.now + rules.horizon_s
        ends = {move.job: min(state.jobs[move.job].expected_end, horizon) for move in moves}
        worth = sum(_gpus(move.origin) * max(0.0, ends[move.job] - move.until) for move in moves) / _HOUR
        last_end = max(state.jobs[job].expected_end for job in node.held)
        before, after = layouts(state.nodes, moves)
        rest = len(node.held) - len(moves)
        known = last_end < NEVER and not rest
        earlier = last_end - max(move.until for move in moves) if known else None
        yield Proposal(
            DRAIN, tuple(moves), before, after, worth, node=node.name, earlier_s=earlier, rest=rest
        )


def defragment(search: MoveSearch) -> Iterator[Proposal]:
    """Yield at most one proposal that gathers free GPUs for later jobs. Yield none while a job waits or is
    nominated.

    1. Try to empty a node, the node with the fewest used GPUs first.
    2. If no node can be emptied at an acceptable cost, try to empty one partly used GPU.
    3. The gain (`worth`) is `gathered_hours` for each GPU that becomes wholly free, or that becomes part of
       an empty node.
    """
    if len(search.state.queue) or search.state.claims:
        return
    found = _empty_node(search) or _empty_gpu(search)
    if found is not None:
        yield found


def _empty_node(search: MoveSearch) -> Proposal | None:
    columns = search.state.nodes.columns
    used = gpu_milli_taken(columns)
    partly = [row for row in np.argsort(used, kind="stable").tolist() if used[row] and columns.open[row]]
    for row in partly[:MOST_EMPTIED]:
        node = search.state.nodes.rows[row]
        # Use no empty node as a target, because a move to an empty node would not increase the number of
        # empty nodes.
        barred = used == 0
        barred[row] = True
        found = _emptied(search, node, _all_or_none(search, node, list(node.held)), barred)
        if found is not None and found.after.whole_gpus > found.before.whole_gpus:
            return found
    return None


def _empty_gpu(search: MoveSearch) -> Proposal | None:
    """Return a proposal that moves the jobs of one partly used GPU to other partly used GPUs, so that the
    first becomes wholly free. Return None if no such proposal is worth its cost.

    Wholly free GPUs are blocked in the search (`MoveSearch.block`), so that no move uses them.
    """
    nodes, free = search.state.nodes, search.state.nodes.columns.gpu_free
    shared = (free > 0) & (free < WHOLE_GPU) & nodes.columns.open[:, None]
    rows = np.flatnonzero(shared.any(axis=1))[:MOST_EMPTIED]
    barred: Bools = np.ones(len(nodes), dtype=np.bool_)
    barred[rows] = False
    least_used = sorted((-int(free[row, slot]), int(row), int(slot)) for row, slot in np.argwhere(shared))
    for _, row, slot in least_used[:MOST_EMPTIED] if len(least_used) > 1 else ():
        node = nodes.rows[row]
        uuid = node.facts.gpus[slot].uuid
        holders = [job for job, each in node.held.items() if any(hold.uuid == uuid for hold in each.gpus)]
        jobs = _all_or_none(search, node, holders)
        for other in rows.tolist() if jobs else ():
            search.block(_free_gpus_and(nodes.rows[other], free[other].tolist(), uuid))
        found = _emptied(search, node, jobs, barred)
        if found is not None and found.after.free_gpus > found.before.free_gpus:
            return found
    return None


def _free_gpus_and(node: Node, free: list[int], uuid: str) -> Allocation:
    """Return an allocation of all wholly free GPUs of the node and of the free part of the GPU `uuid`.

    The move search blocks this allocation, so that no job is moved to these GPUs.
    """
    holds = [
        GpuHold(gpu.uuid, free[slot])
        for slot, gpu in enumerate(node.facts.gpus)
        if free[slot] != ABSENT and free[slot] and (gpu.uuid == uuid or free[slot] == WHOLE_GPU)
    ]
    return Allocation(node.name, 0, 0, tuple(holds))


def _all_or_none(search: MoveSearch, node: Node, holders: list[int]) -> list[Job]:
    """Return the jobs in `holders` if all of them may be moved away from the node; otherwise an empty list.

    The list is empty in three cases: one of the jobs may not be moved, there are more jobs than one proposal
    may move, or resources of the node are kept for a nominated job.
    """
    if len(holders) > search.most or node.claims:
        return []
    jobs = [job for job in search.movable(node.name) if job.id in holders]
    return jobs if len(jobs) == len(holders) else []


def _emptied(search: MoveSearch, node: Node, jobs: list[Job], barred: Bools) -> Proposal | None:
    """Return a proposal that moves all these jobs away from `node`. Nodes for which `barred` is True are not
    used. Return None if a job fits on no other node, or if the gain is too small for the cost.
    """
    moves = search.move_all(jobs, barred)
    search.reset()
    if not moves or len(moves) < len(jobs):
        return None
    before, after = layouts(search.state.nodes, moves)
    gained = max(after.whole_gpus - before.whole_gpus, after.free_gpus - before.free_gpus)
    worth = max(0, gained) * search.rules.gathered_hours
    proposal = Proposal(DEFRAGMENT, tuple(moves), before, after, worth, node=node.name)
    return proposal if proposal.pays(search.rules) else None


def _gpus(allocations: Iterable[Allocation]) -> float:
    return sum(hold.milli for each in allocations for hold in each.gpus) / WHOLE_GPU


STRATEGIES: tuple[tuple[str, Callable[[MoveSearch], Iterator[Proposal]]], ...] = (
    (DEFRAGMENT, make_room),
    (DRAIN, drain_nodes),
    (DEFRAGMENT, defragment),
    (LOAD, balance_load),
)
"""(kind in `[rebalance] kinds`, function that yields the proposals), in the order of preference."""
