"""Which running jobs could be moved, at what cost and what for; and the latest that were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions, cells, glyphs
from tui.columns import Column
from tui.confirm import going
from tui.moves import Step, steps
from tui.paint import Piece
from tui.stage import stage
from tui.views.asked import Asked
from tui.views.view import bindings
from wire.api.jobs import Moved
from wire.api.moves import ProposalView, RebalanceView
from wire.client import Client
from wire.text import plain

PARTS = {"proposed": "queued", "under way": "scheduled", "moved": "completed", "undone": "failed"}
OFF = 'rebalancing is off: [rebalance] mode = "propose" in scheduler.toml shows what could be moved'
WORTHLESS = "nothing to propose: no move would be worth its cost"


class Rebalance(Asked[Step, RebalanceView]):
    """Proposals, each by itself, and behind them what was done."""

    NAME = actions.REBALANCE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.REBALANCE)
    CHANGED_BY = frozenset({"RebalancePlanned", "MovePlanned", "MoveUndone"})
    REASK_S = 15  # all that could be moved is gone through for each answer

    def columns(self) -> Sequence[Column[Step]]:
        """Eighty columns show what one needs to know; more room shows more."""
        return (
            Column("state", "STATE", 1, 11, lambda step: [_state(step)], 11),
            Column("aim", "SO THAT", 2, 30, lambda step: [(plain(step.aim), "text")], 22, grow=2, most=70),
            Column(
                "moves", "MOVES", 3, 30, lambda step: [(plain(step.moves), "accent")], 16, grow=3, most=90
            ),
            Column(
                "cost", "COST", 4, 7, lambda step: [(f"{step.what.gpu_hours:.2f}", "text")], 6, right=True
            ),
            Column("worth", "WORTH", 5, 7, _worth, 6, right=True),
            Column("at", "AT", 6, 12, self._at),
            Column("kind", "KIND", 7, 10, lambda step: [(plain(step.what.kind), "muted")]),
        )

    def _at(self, step: Step) -> Sequence[Piece]:
        at = step.what.at if isinstance(step.what, Moved) else None
        return [(cells.clock(at, stage(self).model.now()) if at is not None else "", "muted")]

    def question(self, client: Client) -> RebalanceView:
        """What could be done now, and what was."""
        return client.rebalance()

    def rows_of(self, answer: RebalanceView) -> Sequence[Step]:
        """Proposals, then moves."""
        self._mode = answer.mode
        return tuple(steps(answer))

    _mode = ""

    def nothing(self) -> Sequence[Piece]:
        """Off, or nothing worth it."""
        return [(OFF if self._mode == "off" else WORTHLESS, "muted")]

    def legend(self) -> Sequence[Piece]:
        """What the figures mean, or why there are none."""
        if any(step.state == "proposed" for step in self.listing.rows.values()):
            auto = " · the controller does this by itself" if self._mode == "auto" else ""
            return [(f"COST and WORTH in GPU-hours{auto}", "muted")]
        return self.nothing() if self.listing.rows else ()

    def told(self, step: Step) -> list[list[Piece]]:
        """All of it, each job on a line."""
        lines = [cells.fact("so that", (plain(step.aim, 300), "strong"))]
        if isinstance(step.what, Moved):
            return [*lines, *_moved(step.what, stage(self).model.now())]
        return [*lines, *_proposed(step.what)]

    def subjects(self) -> Mapping[str, str]:
        """The proposal under the cursor."""
        step = self.here
        return {"proposal": step.key} if step is not None and step.state == "proposed" else {}

    def act_open(self) -> None:
        """The job that starts or was moved, or the node."""
        step = self.here
        if step is None:
            return
        what = step.what
        job = what.job if isinstance(what, Moved) else what.for_job
        if job is not None:
            stage(self).open_job(job)
        elif what.node:
            stage(self).open_node(what.node)


def _state(step: Step) -> Piece:
    return (f"{glyphs.MOVE[step.state]} {step.state}", PARTS[step.state])


def _moves(step: Step) -> Sequence[Piece]:
    return [(plain(step.moves), "accent")]


def _cost(step: Step) -> Sequence[Piece]:
    return [(f"{step.what.gpu_hours:.2f}", "text")]


def _worth(step: Step) -> Sequence[Piece]:
    what = step.what
    if isinstance(what, Moved) or what.kind == "load":
        return [("-", "faint")]
    return [(f"{what.worth:.2f}", "good")]


def _proposed(what: ProposalView) -> list[list[Piece]]:
    before, after = what.before, what.after
    free = f"{before.free_gpus} → {after.free_gpus} GPUs"
    whole = f"{before.whole_gpus} → {after.whole_gpus} of them on free nodes"
    spread = f"fragmented {before.fragmentation:.0%} → {after.fragmentation:.0%}"
    return [
        *(cells.fact("moves", *going(each), (f"  {each.gpu_hours:.2f}", "muted")) for each in what.moves),
        cells.fact("then free", (f"{free}, {whole}, {spread}", "text")),
        cells.fact("proposal", (plain(f"{what.id}, {what.kind}"), "muted")),
    ]


def _moved(move: Moved, now: float) -> list[list[Piece]]:
    then = f", ran there {cells.clock(move.done_at, now)}" if move.done_at is not None else ""
    who = (f"{plain(move.label)} {plain(move.name, 40)}  ", "text"), (plain(move.user, 24), "muted")
    return [
        cells.fact("job", *who),
        cells.fact("moves", (plain(f"{', '.join(move.origin)} → {', '.join(move.to)}", 200), "accent")),
        cells.fact("when", (f"told to move {cells.clock(move.at, now)}{then}", "muted")),
        *([cells.fact("undone", (plain(move.undone, 300), "bad"))] if move.undone else []),
    ]
