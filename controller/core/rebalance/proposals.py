"""Proposals to move running jobs: their cost, their worth, and how the free GPUs lie before and after."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import ABSENT, Ints, NodeTable
from controller.core.cluster.nodes import Nodes
from controller.core.model.events import Allocation
from wire.names import WHOLE_GPU

DEFRAGMENT, DRAIN, LOAD = "defragment", "drain", "load"
KINDS = (DEFRAGMENT, DRAIN, LOAD)


@dataclass(frozen=True, slots=True)
class RebalanceRules:
    """[rebalance] of scheduler.toml: whether running jobs may be moved, and at what cost."""

    mode: str = "off"
    """`off`, `propose` (an operator starts each proposal) or `auto` (done every `interval_s`)."""
    interval_s: float = 300.0
    kinds: tuple[str, ...] = (DEFRAGMENT, DRAIN)
    max_moves: int = 4
    """The most jobs that may be moving at a time."""
    max_gpu_hours: float = 8.0
    """The most that one proposal may cost, in GPU-hours."""
    min_ratio: float = 2.0
    """The least worth of a proposal, as a multiple of its cost."""
    restart_s: float = 60.0
    """Seconds that a job loses by a restart, besides the work since its last checkpoint."""
    horizon_s: float = 86_400.0
    """The most seconds by which an earlier start or end counts."""
    gathered_hours: float = 1.0
    """The worth, in GPU-hours, of one more GPU that is free as a whole or on an empty node."""
    load_gap: float = 0.5
    """The most by which the loads of nodes (0 to 1) may differ."""
    without_checkpoint: bool = False
    """True: also move jobs that have no checkpoint and cannot be asked for one."""


NO_REBALANCING = RebalanceRules()


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The move of one job, from the allocations it holds to the ones reserved for it."""

    job: int
    attempt: int
    origin: tuple[Allocation, ...]
    target: tuple[Allocation, ...]
    quality: int
    gpu_hours: float
    """The cost: the work since the last checkpoint, and the restart."""
    until: float
    """The latest time at which the job has left."""


@dataclass(frozen=True, slots=True)
class FreeGpuLayout:
    """How the free part of all GPUs lies."""

    free_milli: int
    """All of it."""
    free_gpus: int
    """GPUs that are free as a whole."""
    whole_gpus: int
    """GPUs on nodes of which every GPU is free."""

    @property
    def fragmentation(self) -> float:
        """The part of the free GPU capacity (0 to 1) that lies on nodes with a used GPU."""
        return 1 - self.whole_gpus * WHOLE_GPU / self.free_milli if self.free_milli else 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves that fit together, as tried on a copy of the nodes, with their cost and worth."""

    kind: str
    moves: tuple[PlannedMove, ...]
    before: FreeGpuLayout
    after: FreeGpuLayout
    worth: float
    """GPU-hours gained: an earlier start, an earlier end of a drain, or free GPUs brought together."""
    for_job: int | None = None
    """The waiting job for which room is made."""
    target: tuple[Allocation, ...] = ()
    quality: int = 0
    """The placement of that job."""
    node: str = ""
    """The node that is emptied, or whose load falls."""
    earlier_s: float | None = None
    """Seconds by which that job starts, or the node is empty, earlier; None if not known."""
    gap: tuple[float, float] | None = None
    """The difference between the highest and the lowest load, before and after."""
    rest: int = 0
    """Jobs that stay on the node."""

    @property
    def gpu_hours(self) -> float:
        """The cost of all moves."""
        return sum(move.gpu_hours for move in self.moves)

    @property
    def until(self) -> float:
        """The latest time at which all jobs have left."""
        return max(move.until for move in self.moves)

    @property
    def id(self) -> str:
        """An id that is the same for the same moves, and for no others."""
        moves = [(move.job, move.attempt, move.origin, move.target) for move in self.moves]
        content = repr((self.kind, self.for_job, self.target, self.node, moves))
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def pays(self, rules: RebalanceRules) -> bool:
        """True if the cost is allowed and the worth high enough; balancing loads has no worth."""
        if self.gpu_hours > rules.max_gpu_hours:
            return False
        return self.kind == LOAD or self.worth >= rules.min_ratio * self.gpu_hours


def layouts(
    nodes: Nodes, moves: list[PlannedMove], started: tuple[Allocation, ...] = ()
) -> tuple[FreeGpuLayout, FreeGpuLayout]:
    """The layout of free GPUs now, and after these moves and the start of a job on `started`."""
    columns = nodes.columns
    before = columns.gpu_free
    return _layout(columns, before), _layout(columns, gpus_after(nodes, before, moves, started))


def gpus_after(
    nodes: Nodes, gpu_free: Ints, moves: list[PlannedMove], started: tuple[Allocation, ...] = ()
) -> Ints:
    """The free GPU-milli by node and slot, after these moves and the start of a job."""
    after: Ints = gpu_free.copy()
    for sign, allocations in (
        *((1, move.origin) for move in moves),
        *((-1, move.target) for move in moves),
        (-1, started),
    ):
        for each in allocations:
            node = nodes.by_name[each.node]
            for hold in each.gpus:
                slot = node.slots.get(hold.uuid)
                if slot is not None and after[node.row, slot] != ABSENT:
                    after[node.row, slot] += sign * hold.milli
    return after


def _layout(columns: NodeTable, gpu_free: Ints) -> FreeGpuLayout:
    present = (gpu_free != ABSENT) & columns.open[:, None]
    whole = present & (gpu_free == WHOLE_GPU)
    empty = whole.sum(axis=1) == present.sum(axis=1)
    return FreeGpuLayout(int(gpu_free[present].sum()), int(whole.sum()), int(whole[empty].sum()))


def gpu_milli_taken(columns: NodeTable) -> Ints:
    """The used GPU-milli of each node."""
    taken: Ints = np.where(columns.gpu_free == ABSENT, 0, WHOLE_GPU - columns.gpu_free).sum(axis=1)
    return taken
