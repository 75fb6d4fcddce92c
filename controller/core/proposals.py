"""What rebalancing proposes, what each proposal costs and brings, and by which rules."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from controller.core.events import Allocation
from wire.words import WHOLE_GPU

DEFRAGMENT, DRAIN, LOAD = "defragment", "drain", "load"
KINDS = (DEFRAGMENT, DRAIN, LOAD)


@dataclass(frozen=True, slots=True)
class RebalanceRules:
    """Whether running jobs may be moved, and at what price."""

    mode: str = "off"
    """`propose` shows what could be done and does it when told, `auto` does it every `interval_s`."""
    interval_s: float = 300.0
    kinds: tuple[str, ...] = (DEFRAGMENT, DRAIN)
    max_moves: int = 4
    """Jobs that may be on the move at a time."""
    max_gpu_hours: float = 8.0
    """What one proposal may cost."""
    min_ratio: float = 2.0
    """How many times its cost a proposal must bring."""
    restart_s: float = 60.0
    """What a job loses by starting anew, beyond what it has not saved."""
    horizon_s: float = 86_400.0
    """Nothing counts as being earlier by more than this."""
    gathered_hours: float = 1.0
    """What one more GPU that is wholly free, or on a free node, is worth while nobody waits, in GPU-hours."""
    load_gap: float = 0.5
    """Nodes' loads, from 0 to 1, may differ by so much."""
    without_checkpoint: bool = False
    """Whether jobs are moved that neither saved their state nor can be asked to."""


NO_REBALANCING = RebalanceRules()


@dataclass(frozen=True, slots=True)
class Relocation:
    """One job that moves: from what it holds to what is kept for it."""

    job: int
    attempt: int
    origin: tuple[Allocation, ...]
    target: tuple[Allocation, ...]
    quality: int
    gpu_hours: float
    """Work since its last checkpoint, and the restart."""
    until: float
    """When it is gone at the latest."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How what is free of the GPUs lies: in all, on GPUs that are wholly free, on nodes that are."""

    free_milli: int
    free_gpus: int
    whole_gpus: int
    """GPUs of nodes nobody holds a GPU of."""

    @property
    def fragmentation(self) -> float:
        """The part of what is free that lies on nodes of which something is taken."""
        return 1 - self.whole_gpus * WHOLE_GPU / self.free_milli if self.free_milli else 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves that were proven together on a copy of the nodes, and what they are good for."""

    kind: str
    moves: tuple[Relocation, ...]
    before: Spread
    after: Spread
    worth: float
    """GPU-hours: earlier start, earlier end of a drain, or GPUs gathered."""
    for_job: int | None = None
    place: tuple[Allocation, ...] = ()
    quality: int = 0
    """Where the job starts for which room is made."""
    node: str = ""
    """The node that empties, or whose load is lightened."""
    earlier_s: float | None = None
    """By how much sooner that job starts or the node is empty; None: nobody knows when else."""
    gap: tuple[float, float] | None = None
    """The difference between the loads of nodes, before and after."""
    rest: int = 0
    """Jobs that stay on the node all the same."""

    @property
    def gpu_hours(self) -> float:
        """What it costs."""
        return sum(move.gpu_hours for move in self.moves)

    @property
    def until(self) -> float:
        """When all are gone at the latest."""
        return max(move.until for move in self.moves)

    @property
    def id(self) -> str:
        """The same for the same moves, and for no others."""
        told = repr((self.kind, self.for_job, self.place, self.node, [_told(move) for move in self.moves]))
        return hashlib.sha256(told.encode()).hexdigest()[:8]

    def pays(self, rules: RebalanceRules) -> bool:
        """Is it cheap enough, and worth its price? Evening out loads has no worth in GPU-hours."""
        if self.gpu_hours > rules.max_gpu_hours:
            return False
        return self.kind == LOAD or self.worth >= rules.min_ratio * self.gpu_hours


def _told(move: Relocation) -> tuple[object, ...]:
    return move.job, move.attempt, move.origin, move.target
