"""Moves of running jobs: proposals, orders and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from wire.api.jobs import Held, Moved
from wire.text import counted, duration, printable


@dataclass(frozen=True)
class MoveView:
    """One job that would move: its allocation now, its new allocation, and the cost."""

    job: int
    label: str
    name: str
    user: str
    origin: tuple[Held, ...]
    target: tuple[Held, ...]
    gpu_hours: float


@dataclass(frozen=True)
class SpreadView:
    """Fragmentation: free GPUs, free GPUs of idle nodes, and the share of free GPUs on other nodes."""

    free_gpus: int
    whole_gpus: int
    fragmentation: float


@dataclass(frozen=True)
class ProposalView:
    """Jobs that could be moved, with cost and benefit; each proposal stands alone."""

    id: str
    kind: str
    moves: tuple[MoveView, ...]
    gpu_hours: float
    worth: float
    """Benefit in GPU-hours: an earlier start, an earlier end of a drain, or defragmented GPUs."""
    before: SpreadView
    after: SpreadView
    for_job: Optional[int] = None
    label: str = ""
    name: str = ""
    """The job that starts because of the move."""
    place: tuple[Held, ...] = ()
    node: str = ""
    """The node that becomes empty or less loaded."""
    rest: int = 0
    """Jobs that stay on the node."""
    earlier_s: Optional[float] = None
    """Seconds by which the job starts, or the node is empty, sooner; None if unknown."""
    gap: Optional[tuple[float, float]] = None
    """The difference between the loads of nodes, before and after the move."""


@dataclass(frozen=True)
class RebalanceView:
    """The present proposals, and the latest moves."""

    mode: str
    proposals: tuple[ProposalView, ...]
    moves: tuple[Moved, ...]
    seq: int


@dataclass(frozen=True)
class RebalanceRequest:
    """Body of run: the id of one proposal; empty: all proposals."""

    proposal: str = ""


@dataclass(frozen=True)
class Rebalanced:
    """The moves that have started."""

    moves: tuple[Moved, ...]


def proposal_benefit(each: ProposalView) -> str:
    """The benefit of a proposal, as text."""
    sooner = "" if each.earlier_s is None else f" {duration(each.earlier_s)} sooner"
    if each.for_job is not None:
        return f"job {each.label} ({printable(each.name)}) starts{sooner} on {nodes_and_gpus(each.place)}"
    if each.kind == "load":
        before, after = each.gap or (0.0, 0.0)
        return f"loads differ by {after:.0%}, not {before:.0%}"
    if each.kind == "defragment" and each.after.whole_gpus <= each.before.whole_gpus:
        more = each.after.free_gpus - each.before.free_gpus
        return f"{counted(more, 'more GPU')} of {each.node} {'is' if more == 1 else 'are'} wholly free"
    if each.rest:
        return f"{each.node} is left with {counted(each.rest, 'job')}"
    return f"{each.node} is empty{sooner}"


def nodes_and_gpus(parts: Sequence[Held]) -> str:
    """Nodes with the GPUs by number, as in `gpu01:0,1`."""
    told = []
    for part in parts:
        gpus = ",".join(gpu.number for gpu in part.gpus)
        told.append(f"{part.node}:{gpus}" if gpus else part.node)
    return " ".join(told)


def move_purpose(move: Moved) -> str:
    """The purpose of a move, as text."""
    if move.for_job is not None:
        return f"job {move.for_job} starts"
    return {"load": f"{move.node} is lighter", "drain": f"{move.node} is empty"}.get(
        move.kind, f"more is free on {move.node}"
    )


def move_status(move: Moved) -> str:
    """The status of a move: under way, moved or undone."""
    if move.undone:
        return "undone"
    return "under way" if move.done_at is None else "moved"
