"""Loads evened out, for those who would rather have all hosts half busy than half of them idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from controller.core.columns import ABSENT, Columns, Floats
from controller.core.movers import Movers
from controller.core.nodes import Nodes
from controller.core.proposals import LOAD, Proposal, Relocation
from controller.core.spreads import gpus_after, spreads, taken
from wire.words import WHOLE_GPU


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
        spread, name = spreads(nodes, moves), nodes.rows[row].name
        yield Proposal(LOAD, tuple(moves), *spread, worth=0.0, node=name, gap=(before, used.gap))


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
            gpu_free=gpus_after(nodes, columns.gpu_free, [move]),
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
        taken(columns) / np.maximum(1, present),
    ]
    loads: Floats = np.max(parts, axis=0)
    return loads
