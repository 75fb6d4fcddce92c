"""Moves of running jobs: proposed, ordered and done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from wire.api.jobs import Held, Moved


@dataclass(frozen=True)
class MoveView:
    """One job that would move: from what it holds to what would be kept for it, and what that costs."""

    job: int
    label: str
    name: str
    user: str
    origin: tuple[Held, ...]
    target: tuple[Held, ...]
    gpu_hours: float


@dataclass(frozen=True)
class SpreadView:
    """How what is free lies: GPUs wholly free, those of nodes wholly free, and the part not on such nodes."""

    free_gpus: int
    whole_gpus: int
    fragmentation: float


@dataclass(frozen=True)
class ProposalView:
    """Jobs that could be moved, at what cost, and what for; each proposal by itself."""

    id: str
    kind: str
    moves: tuple[MoveView, ...]
    gpu_hours: float
    worth: float
    """GPU-hours: earlier start, earlier end of a drain, GPUs gathered."""
    before: SpreadView
    after: SpreadView
    for_job: Optional[int] = None
    label: str = ""
    name: str = ""
    """The job that starts because of it."""
    place: tuple[Held, ...] = ()
    node: str = ""
    """The node that empties, or whose load is lightened."""
    rest: int = 0
    """Jobs that stay there all the same."""
    earlier_s: Optional[float] = None
    """By how much sooner; None where nobody knows when it would be otherwise."""
    gap: Optional[tuple[float, float]] = None
    """The difference between the loads of nodes, before and after."""


@dataclass(frozen=True)
class RebalanceView:
    """What could be done now, and the latest that was."""

    mode: str
    proposals: tuple[ProposalView, ...]
    moves: tuple[Moved, ...]
    seq: int


@dataclass(frozen=True)
class RebalanceRequest:
    """Body of run: one proposal, or empty: whatever can be proposed."""

    proposal: str = ""


@dataclass(frozen=True)
class Rebalanced:
    """The moves that have begun."""

    moves: tuple[Moved, ...]
