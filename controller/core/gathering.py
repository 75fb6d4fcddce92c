"""What is free brought together while nobody waits: whole nodes, and whole GPUs of those that are shared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controller.core.columns import ABSENT, Bools
from controller.core.events import Allocation
from controller.core.jobs import Job
from controller.core.movers import Movers
from controller.core.nodes import Node
from controller.core.proposals import DEFRAGMENT, Proposal
from controller.core.spreads import spreads, taken
from wire.frames import GpuHold
from wire.words import WHOLE_GPU

MOST = 64
"""Nodes, and GPUs, that are tried."""


def gathering(movers: Movers, most: int, now: float) -> Iterator[Proposal]:
    """Empty the node where that moves least, for whoever comes next; else a GPU that is shared."""
    found = _whole_node(movers, most, now) or _whole_gpu(movers, most, now)
    if found is not None:
        yield found


def _whole_node(movers: Movers, most: int, now: float) -> Proposal | None:
    columns = movers.state.nodes.columns
    used = taken(columns)
    partly = [row for row in np.argsort(used, kind="stable").tolist() if used[row] and columns.open[row]]
    for row in partly[:MOST]:
        node = movers.state.nodes.rows[row]
        barred = used == 0  # else it would only be exchanged for another
        barred[row] = True
        found = _emptied(movers, node, _all_of(movers, node, list(node.held), most, now), barred, now)
        if found is not None and found.after.whole_gpus > found.before.whole_gpus:
            return found
    return None


def _whole_gpu(movers: Movers, most: int, now: float) -> Proposal | None:
    """To other GPUs that are shared already: all others are kept out of reach on the copy."""
    nodes, columns = movers.state.nodes, movers.state.nodes.columns
    free = columns.gpu_free
    shared = (free > 0) & (free < WHOLE_GPU) & columns.open[:, None]
    rows = np.flatnonzero(shared.any(axis=1))[:MOST]
    others: Bools = np.ones(len(nodes), dtype=np.bool_)
    others[rows] = False
    least_used = sorted((-int(free[row, slot]), int(row), int(slot)) for row, slot in np.argwhere(shared))
    for _, row, slot in least_used[:MOST] if len(least_used) > 1 else ():
        node = nodes.rows[row]
        uuid = node.facts.gpus[slot].uuid
        holders = [job for job, each in node.held.items() if any(hold.uuid == uuid for hold in each.gpus)]
        jobs = _all_of(movers, node, holders, most, now)
        for other in rows.tolist() if jobs else ():
            movers.block(_out_of_reach(nodes.rows[other], free[other].tolist(), uuid))
        found = _emptied(movers, node, jobs, others, now)
        if found is not None and found.after.free_gpus > found.before.free_gpus:
            return found
    return None


def _out_of_reach(node: Node, free: list[int], uuid: str) -> Allocation:
    """What is free of the GPUs of a node that are wholly free, and of this one."""
    holds = [
        GpuHold(gpu.uuid, free[slot])
        for slot, gpu in enumerate(node.facts.gpus)
        if free[slot] != ABSENT and free[slot] and (gpu.uuid == uuid or free[slot] == WHOLE_GPU)
    ]
    return Allocation(node.name, 0, 0, tuple(holds))


def _all_of(movers: Movers, node: Node, holders: list[int], most: int, now: float) -> list[Job]:
    """These jobs of a node, if all of them may be moved at once; else nobody."""
    if len(holders) > most or node.claims:
        return []
    jobs = [job for job in movers.on(node.name, now) if job.id in holders]
    return jobs if len(jobs) == len(holders) else []


def _emptied(movers: Movers, node: Node, jobs: list[Job], barred: Bools, now: float) -> Proposal | None:
    """All of these moved to nodes that are not barred, if that can be and is worth its cost."""
    moves = movers.move_all(jobs, now, barred)
    movers.let_go()
    if not moves or len(moves) < len(jobs):
        return None
    before, after = spreads(movers.state.nodes, moves)
    gained = max(after.whole_gpus - before.whole_gpus, after.free_gpus - before.free_gpus)
    worth = max(0, gained) * movers.rules.gathered_hours
    proposal = Proposal(DEFRAGMENT, tuple(moves), before, after, worth, node=node.name)
    return proposal if proposal.pays(movers.rules) else None
