"""Proposals to move running jobs: their cost, their gain (worth), and the free GPUs before and after."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import ABSENT, Ints, NodeTable
from controller.core.cluster.nodes import Nodes
from controller.core.model.allocation import Allocation
from wire.names import WHOLE_GPU

DEFRAGMENT, DRAIN, LOAD = "defragment", "drain", "load"
KINDS = (DEFRAGMENT, DRAIN, LOAD)


@dataclass(frozen=True, slots=True)
class RebalanceRules:
    """The table [rebalance] of scheduler.toml: whether running jobs may be moved, and at what cost."""

    mode: str = "off"
    """`off`, `propose` (operators carry out proposals) or `auto` (proposals are carried out every
    `interval_s` seconds).
    """
    interval_s: float = 300.0
    kinds: tuple[str, ...] = (DEFRAGMENT, DRAIN)
    max_moves: int = 4
    """At most this many jobs are being moved at a time."""
    max_gpu_hours: float = 8.0
    """One proposal may cost at most this many GPU-hours."""
    min_ratio: float = 2.0
    """The gain (`worth`) of a proposal must be at least this many times its cost."""
    restart_s: float = 60.0
    """The time in seconds that the restart of a moved job takes. It counts as cost, in addition to the work
    since the job's last checkpoint.
    """
    horizon_s: float = 86_400.0
    """An earlier start of a job or an earlier end of a drain counts as gain only within this many seconds
    from now.
    """
    gathered_hours: float = 1.0
    """The gain in GPU-hours for each GPU that becomes wholly free, or that becomes part of an empty node."""
    load_gap: float = 0.5
    """Jobs are moved to balance the loads only if the highest and the lowest load of nodes (0 to 1) differ by
    more than this.
    """
    without_checkpoint: bool = False
    """True: also move jobs that have no checkpoint and cannot save one on request."""


NO_REBALANCING = RebalanceRules()


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The move of one job from its present allocations `origin` to the allocations `target`."""

    job: int
    attempt: int
    origin: tuple[Allocation, ...]
    target: tuple[Allocation, ...]
    quality: int
    gpu_hours: float
    """The cost in GPU-hours: the work since the last checkpoint, plus the GPUs of the job times
    `restart_s`.
    """
    until: float
    """The time by which the job has left its old nodes."""


@dataclass(frozen=True, slots=True)
class FreeGpuLayout:
    """The distribution of free GPU capacity over the GPUs and nodes that accept jobs."""

    free_milli: int
    """The free GPU capacity of all nodes, in thousandths of a GPU."""
    free_gpus: int
    """The number of wholly free GPUs."""
    whole_gpus: int
    """The number of GPUs on nodes whose GPUs are all wholly free."""

    @property
    def fragmentation(self) -> float:
        """The fraction (0 to 1) of the free GPU capacity that is on nodes with at least one used GPU."""
        return 1 - self.whole_gpus * WHOLE_GPU / self.free_milli if self.free_milli else 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """A set of moves of running jobs, with its cost and its gain (`worth`).

    The moves were tried on a copy of the nodes, so all of them fit together.
    """

    kind: str
    moves: tuple[PlannedMove, ...]
    before: FreeGpuLayout
    after: FreeGpuLayout
    worth: float
    """The gain in GPU-hours. The gain comes from an earlier start, an earlier end of a drain, or free GPUs
    that are brought together.
    """
    for_job: int | None = None
    """The waiting job that starts on the nodes that the moved jobs leave. None if the moves are not for a
    waiting job.
    """
    target: tuple[Allocation, ...] = ()
    quality: int = 0
    """`target` are the allocations of the job `for_job`, and `quality` the quality of this placement."""
    node: str = ""
    """The node that the moved jobs leave, so that the node or one of its GPUs becomes empty, or its load
    falls. Empty if the moves are for a waiting job.
    """
    earlier_s: float | None = None
    """The number of seconds by which the job `for_job` starts earlier, or the node `node` becomes empty
    earlier. None if this number is unknown.
    """
    gap: tuple[float, float] | None = None
    """The difference between the highest and the lowest load of nodes, as (before the moves, after the
    moves).
    """
    rest: int = 0
    """The number of jobs that the proposal leaves on the node `node`."""

    @property
    def gpu_hours(self) -> float:
        return sum(move.gpu_hours for move in self.moves)

    @property
    def until(self) -> float:
        """The time by which all moved jobs have left their old nodes."""
        return max(move.until for move in self.moves)

    @property
    def id(self) -> str:
        """The id of the proposal, a hash of its moves. A proposal with the same moves has the same id."""
        moves = [(move.job, move.attempt, move.origin, move.target) for move in self.moves]
        content = repr((self.kind, self.for_job, self.target, self.node, moves))
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def pays(self, rules: RebalanceRules) -> bool:
        """Return whether the proposal is worth its cost. The cost must be within the limits of `rules`, and
        the gain (`worth`) must be high enough for the cost. A proposal to balance loads needs no gain.
        """
        if self.gpu_hours > rules.max_gpu_hours:
            return False
        return self.kind == LOAD or self.worth >= rules.min_ratio * self.gpu_hours


def layouts(
    nodes: Nodes, moves: list[PlannedMove], started: tuple[Allocation, ...] = ()
) -> tuple[FreeGpuLayout, FreeGpuLayout]:
    """Return two layouts of the free GPUs: now, and after these moves and the start of a job with the
    allocations `started`.
    """
    columns = nodes.columns
    after = gpus_after(nodes, columns.gpu_free, moves, started)
    return free_gpu_layout(columns), _layout(columns, after)


def free_gpu_layout(columns: NodeTable) -> FreeGpuLayout:
    """Return the present layout of the free GPUs."""
    return _layout(columns, columns.gpu_free)


def gpus_after(
    nodes: Nodes, gpu_free: Ints, moves: list[PlannedMove], started: tuple[Allocation, ...] = ()
) -> Ints:
    """Return the free thousandths of each GPU after these moves and the start of a job with the allocations
    `started`. The result has one row for each node and one column for each GPU of the node, as `gpu_free`.
    """
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
    """Return the used GPU capacity of each node, in thousandths of a GPU."""
    taken: Ints = np.where(columns.gpu_free == ABSENT, 0, WHOLE_GPU - columns.gpu_free).sum(axis=1)
    return taken
