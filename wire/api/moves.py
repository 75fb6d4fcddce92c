"""Moves of running jobs: proposed, ordered and done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from wire.api.jobs import Held, Moved
from wire.text import counted, duration, plain


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


def aim(each: ProposalView) -> str:
    """What a proposal is good for."""
    sooner = "" if each.earlier_s is None else f" {duration(each.earlier_s)} sooner"
    if each.for_job is not None:
        return f"job {each.label} ({plain(each.name)}) starts{sooner} on {place(each.place)}"
    if each.kind == "load":
        before, after = each.gap or (0.0, 0.0)
        return f"loads differ by {after:.0%}, not {before:.0%}"
    if each.kind == "defragment" and each.after.whole_gpus <= each.before.whole_gpus:
        more = each.after.free_gpus - each.before.free_gpus
        return f"{counted(more, 'more GPU')} of {each.node} {'is' if more == 1 else 'are'} wholly free"
    if each.rest:
        return f"{each.node} is left with {counted(each.rest, 'job')}"
    return f"{each.node} is empty{sooner}"


def place(parts: Sequence[Held]) -> str:
    """Nodes with the GPUs by index, as in `gpu01:0,1`."""
    told = []
    for part in parts:
        gpus = ",".join(str(gpu.index) for gpu in part.gpus)
        told.append(f"{part.node}:{gpus}" if gpus else part.node)
    return " ".join(told)


def purpose(move: Moved) -> str:
    """What a job was moved for."""
    if move.for_job is not None:
        return f"job {move.for_job} starts"
    return {"load": f"{move.node} is lighter", "drain": f"{move.node} is empty"}.get(
        move.kind, f"more is free on {move.node}"
    )


def fate(move: Moved) -> str:
    """What has become of it: under way, moved or undone."""
    if move.undone:
        return "undone"
    return "under way" if move.done_at is None else "moved"
