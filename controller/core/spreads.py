"""How what is free of the GPUs lies, before some jobs move and afterwards."""

from __future__ import annotations

import numpy as np

from controller.core.columns import ABSENT, Columns, Ints
from controller.core.events import Allocation
from controller.core.nodes import Nodes
from controller.core.proposals import Relocation, Spread
from wire.words import WHOLE_GPU


def spreads(
    nodes: Nodes, moves: list[Relocation], place: tuple[Allocation, ...] = ()
) -> tuple[Spread, Spread]:
    """How what is free lies before, and when all is done."""
    columns = nodes.columns
    before = columns.gpu_free
    return _spread(columns, before), _spread(columns, gpus_after(nodes, before, moves, place))


def gpus_after(
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


def taken(columns: Columns) -> Ints:
    """GPU-milli given out, by node."""
    taken: Ints = np.where(columns.gpu_free == ABSENT, 0, WHOLE_GPU - columns.gpu_free).sum(axis=1)
    return taken
