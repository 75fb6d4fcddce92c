"""Moves of running jobs: what is proposed, and what has come of the latest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tui.listing import Listing
from wire.api.jobs import Moved
from wire.api.moves import ProposalView, RebalanceView, aim, fate, place, purpose


@dataclass(frozen=True)
class Step:
    """A proposal or a move, and where it stands in the answer: the best and the latest come first."""

    at: int
    what: ProposalView | Moved

    @property
    def key(self) -> str:
        """What it is known by."""
        what = self.what
        return what.id if isinstance(what, ProposalView) else f"{what.job}@{what.at}"

    @property
    def state(self) -> str:
        """proposed, under way, moved or undone."""
        return "proposed" if isinstance(self.what, ProposalView) else fate(self.what)

    @property
    def aim(self) -> str:
        """What it is good for."""
        return aim(self.what) if isinstance(self.what, ProposalView) else purpose(self.what)

    @property
    def moves(self) -> str:
        """Who goes from where to where."""
        what = self.what
        if isinstance(what, Moved):
            return f"{what.label} {','.join(what.origin)} → {','.join(what.to)}"
        return ", ".join(f"{each.label} {place(each.origin)} → {place(each.target)}" for each in what.moves)


def steps(answer: RebalanceView) -> Iterator[Step]:
    """Everything in an answer, in its order."""
    whats: tuple[ProposalView | Moved, ...] = (*answer.proposals, *answer.moves)
    return (Step(at, what) for at, what in enumerate(whats))


def step_listing() -> Listing[str, Step]:
    """Proposals first."""
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
        haystack=lambda step: f"{step.state} {step.what.kind} {step.aim} {step.moves}",
    )
