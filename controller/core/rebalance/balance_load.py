"""Proposes moves of jobs away from the node with the highest load. A site that prefers even loads adds `load`
to `[rebalance] kinds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from controller.core.cluster.node_table import ABSENT, Floats, NodeTable
from controller.core.cluster.nodes import Nodes
from controller.core.rebalance.move_search import MoveSearch
from controller.core.rebalance.proposals import (
    LOAD,
    PlannedMove,
    Proposal,
    gpu_milli_taken,
    gpus_after,
    layouts,
)
from wire.names import WHOLE_GPU


def balance_load(search: MoveSearch) -> Iterator[Proposal]:
    """Yield at most one proposal. Its moves reduce the difference between the highest and the lowest load of
    nodes.

    1. The load of a node is the used fraction (0 to 1) of its scarcest resource: CPU, memory or GPUs.
    2. Propose nothing if the highest and the lowest load differ by at most `load_gap`.
    3. Move jobs away from the node with the highest load, to nodes whose load is at most the mean of the
       highest and the lowest load. Skip a move that would not reduce the difference. Stop when the difference
       is at most `load_gap` or `MoveSearch.most` jobs are moved.
    """
    nodes, columns = search.state.nodes, search.state.nodes.columns
    if int(columns.open.sum()) < 2:
        return
    loads = _NodeLoads(columns)
    before = loads.gap
    row = loads.highest
    if before <= search.rules.load_gap:
        return
    moves: list[PlannedMove] = []
    for job in search.movable(nodes.rows[row].name):
        if len(moves) >= search.most or loads.gap <= search.rules.load_gap:
            break
        each = loads.each
        move = search.move(job, each > (each[row] + each[columns.open].min()) / 2)
        if move is None:
            continue
        after = loads.after(nodes, move)
        if after.gap < loads.gap:
            loads = after
            moves.append(move)
    search.reset()
    if moves:
        layout, name = layouts(nodes, moves), nodes.rows[row].name
        yield Proposal(LOAD, tuple(moves), *layout, worth=0.0, node=name, gap=(before, loads.gap))


class _NodeLoads:
    """The load of each node: the used fraction (0 to 1) of its scarcest resource (CPU, memory or GPUs)."""

    def __init__(self, columns: NodeTable) -> None:
        self._columns = columns
        present = (columns.gpu_free != ABSENT).sum(axis=1) * WHOLE_GPU
        parts = [
            1 - columns.cpu_free / np.maximum(1, columns.cpu_total),
            1 - columns.memory_free / np.maximum(1, columns.memory_total),
            gpu_milli_taken(columns) / np.maximum(1, present),
        ]
        self.each: Floats = np.max(parts, axis=0)

    @property
    def highest(self) -> int:
        """The row in the node table of the node with the highest load. Only nodes that accept jobs count. If
        several nodes have the highest load, the result is the first of them by name.
        """
        return int(np.where(self._columns.open, self.each, -1.0).argmax())

    @property
    def gap(self) -> float:
        """The difference between the highest and the lowest load of the nodes that accept jobs."""
        of_open = self.each[self._columns.open]
        return float(of_open.max() - of_open.min())

    def after(self, nodes: Nodes, move: PlannedMove) -> _NodeLoads:
        columns = self._columns
        moved = replace(
            columns,
            cpu_free=columns.cpu_free.copy(),
            memory_free=columns.memory_free.copy(),
            gpu_free=gpus_after(nodes, columns.gpu_free, [move]),
        )
        for sign, allocations in ((1, move.origin), (-1, move.target)):
            for each in allocations:
                row = nodes.by_name[each.node].row
                moved.cpu_free[row] += sign * each.cpu_milli
                moved.memory_free[row] += sign * each.memory_mib
        return _NodeLoads(moved)
