"""The rows of the list that shows proposed moves and recent moves of running jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tui.data.lists.listing import Listing
from wire.api.jobs import Moved
from wire.api.policy.rebalance import (
    ProposalView,
    RebalanceView,
    move_purpose,
    move_status,
    nodes_and_gpus,
    proposal_benefit,
)


@dataclass(frozen=True)
class MoveRow:
    """One row of the list: a proposed move, or a move that has begun. `at` is the index of the row in the
    controller's answer: first the proposals, the best first, then the moves that have begun, the latest
    first.
    """

    at: int
    what: ProposalView | Moved

    @property
    def key(self) -> str:
        what = self.what
        return what.id if isinstance(what, ProposalView) else f"{what.job}@{what.at}"

    @property
    def state(self) -> str:
        return "proposed" if isinstance(self.what, ProposalView) else move_status(self.what)

    @property
    def purpose(self) -> str:
        return proposal_benefit(self.what) if isinstance(self.what, ProposalView) else move_purpose(self.what)

    @property
    def moves(self) -> str:
        """Return the jobs of the move, with their nodes before and after the move, as text."""
        what = self.what
        if isinstance(what, Moved):
            return f"{what.label} {','.join(what.origin)} → {','.join(what.to)}"
        return ", ".join(
            f"{each.label} {nodes_and_gpus(each.origin)} → {nodes_and_gpus(each.target)}"
            for each in what.moves
        )


def move_rows(answer: RebalanceView) -> Iterator[MoveRow]:
    """Return a row for each proposed move, then a row for each recent move, in the order of the controller's
    answer.
    """
    whats: tuple[ProposalView | Moved, ...] = (*answer.proposals, *answer.moves)
    return (MoveRow(at, what) for at, what in enumerate(whats))


def move_listing() -> Listing[str, MoveRow]:
    """Return a new, empty list of moves, sorted with proposals first."""
    return Listing(
        key=lambda step: step.key,
        sorts={
            "order": lambda step: step.at,
            "state": lambda step: step.state,
            "cost": lambda step: -step.what.gpu_hours,
            "worth": lambda step: -step.what.worth if isinstance(step.what, ProposalView) else 0.0,
        },
        fields={
            "state": lambda step: step.state,
            "kind": lambda step: step.what.kind,
            "node": lambda step: step.what.node,
            "cost": lambda step: step.what.gpu_hours,
            "job": lambda step: step.moves,
        },
        haystack=lambda step: f"{step.state} {step.what.kind} {step.purpose} {step.moves}",
    )
