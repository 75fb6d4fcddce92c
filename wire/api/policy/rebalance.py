"""API bodies for moves of running jobs to other nodes: proposals, orders and results."""

from __future__ import annotations

from typing import Optional, Sequence

from wire.api.jobs import Held, Moved
from wire.dataclass import dataclass
from wire.text import counted, duration, printable


@dataclass(frozen=True)
class MoveView:
    """One job that would move, with its current and its new allocation. `gpu_hours` is the estimated cost of
    the move, in GPU-hours.
    """

    job: int
    label: str
    name: str
    user: str
    origin: tuple[Held, ...]
    target: tuple[Held, ...]
    gpu_hours: float


@dataclass(frozen=True)
class SpreadView:
    """The fragmentation of the free GPUs of the cluster. `free_gpus` is the number of GPUs that no job uses.
    `whole_gpus` is the number of GPUs on nodes where no GPU is used. `fragmentation` is the fraction (0 to 1)
    of the free GPU capacity that is on nodes with at least one used GPU.
    """

    free_gpus: int
    whole_gpus: int
    fragmentation: float


@dataclass(frozen=True)
class ProposalView:
    """A proposal to move one or several running jobs, with its cost and benefit. It can be carried out
    without the other proposals.
    """

    id: str
    kind: str
    moves: tuple[MoveView, ...]
    gpu_hours: float
    worth: float
    """The benefit of the proposal in GPU-hours, for example because a waiting job starts earlier, a drain
    ends earlier, or the free GPUs are less fragmented.
    """
    before: SpreadView
    after: SpreadView
    for_job: Optional[int] = None
    label: str = ""
    name: str = ""
    """`for_job`, `label` and `name` are the id, the label and the name of the waiting job that can start
    because of the moves; empty if the moves have another purpose.
    """
    place: tuple[Held, ...] = ()
    node: str = ""
    """The node that the moves empty, fully or in part; empty if the moves have another purpose."""
    rest: int = 0
    """The number of jobs that the moves leave on the node `node`."""
    earlier_s: Optional[float] = None
    """The number of seconds by which the waiting job starts earlier, or the node is empty earlier; None if
    unknown.
    """
    gap: Optional[tuple[float, float]] = None
    """The load of the node with the highest load minus the load of the node with the lowest load, as (before
    the moves, after the moves).
    """


@dataclass(frozen=True)
class RebalanceView:
    """The current proposals to move jobs, and the latest moves that were carried out."""

    mode: str
    proposals: tuple[ProposalView, ...]
    moves: tuple[Moved, ...]
    seq: int


@dataclass(frozen=True)
class RebalanceRequest:
    """The body of `/v1/rebalance/run`: the id of the proposal to carry out. If the id is empty, all proposals
    are carried out.
    """

    proposal: str = ""


@dataclass(frozen=True)
class Rebalanced:
    """The moves that the controller has started."""

    moves: tuple[Moved, ...]


def proposal_benefit(proposal: ProposalView) -> str:
    """Return the benefit of a proposal as text for users, such as `gpu01 is empty 2h10m sooner`."""
    sooner = "" if proposal.earlier_s is None else f" {duration(proposal.earlier_s)} sooner"
    if proposal.for_job is not None:
        place = nodes_and_gpus(proposal.place)
        return f"job {proposal.label} ({printable(proposal.name)}) starts{sooner} on {place}"
    if proposal.kind == "load":
        before, after = proposal.gap or (0.0, 0.0)
        return f"loads differ by {after:.0%}, not {before:.0%}"
    if proposal.kind == "defragment" and proposal.after.whole_gpus <= proposal.before.whole_gpus:
        more = proposal.after.free_gpus - proposal.before.free_gpus
        return f"{counted(more, 'more GPU')} of {proposal.node} {'is' if more == 1 else 'are'} wholly free"
    if proposal.rest:
        return f"{proposal.node} is left with {counted(proposal.rest, 'job')}"
    return f"{proposal.node} is empty{sooner}"


def nodes_and_gpus(allocation: Sequence[Held]) -> str:
    """Return the nodes of an allocation and the numbers of the allocated GPUs as text, such as
    `gpu01:0,1`.
    """
    texts = []
    for part in allocation:
        gpus = ",".join(gpu.number for gpu in part.gpus)
        texts.append(f"{part.node}:{gpus}" if gpus else part.node)
    return " ".join(texts)


def move_purpose(move: Moved) -> str:
    """Return the purpose of a move as text for users, such as `job 12 starts` or `gpu01 is empty`."""
    if move.for_job is not None:
        return f"job {move.for_job} starts"
    return {"load": f"{move.node} has less load", "drain": f"{move.node} is empty"}.get(
        move.kind, f"more GPUs are free on {move.node}"
    )


def move_status(move: Moved) -> str:
    """Return the status of a move as text: under way, moved or undone."""
    if move.undone:
        return "undone"
    return "under way" if move.done_at is None else "moved"
