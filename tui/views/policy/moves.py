"""The list of proposed moves and recent moves of running jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.changes.confirmations import move_line
from tui.data.cluster_feed import Changes
from tui.data.lists.move_lists import MoveRow, move_rows
from tui.look import cells, glyphs
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.views.polled_list_view import PolledListView
from tui.views.view import bindings
from wire.api.jobs import Moved
from wire.api.policy.rebalance import ProposalView, RebalanceView
from wire.http.client import Client
from wire.text import printable

PARTS = {"proposed": "queued", "under way": "scheduled", "moved": "completed", "undone": "failed"}
OFF = 'rebalancing is off: [rebalance] mode = "propose" in scheduler.toml shows what could be moved'
WORTHLESS = "nothing to propose: no move would be worth its cost"


class MovesView(PolledListView[MoveRow, RebalanceView]):
    NAME = actions.REBALANCE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.REBALANCE)
    CHANGED_BY = frozenset({"RebalancePlanned", "MovePlanned", "MoveUndone"})
    REASK_S = 15  # Use a long interval, because the controller examines all running jobs for each answer.

    def changed(self, changes: Changes) -> None:
        """Request the list again, also when a job with a move under way changes, because the move is complete
        when the job runs on its new nodes.
        """
        moving = {
            step.what.job
            for step in self.listing.rows.values()
            if isinstance(step.what, Moved) and step.state == "under way"
        }
        if any(job.id in moving for job in changes.jobs):
            self.ask()
        else:
            super().changed(changes)

    def columns(self) -> Sequence[ListColumn[MoveRow]]:
        return (
            ListColumn("state", "STATE", 1, 11, lambda step: [_state(step)], 11),
            ListColumn(
                "aim", "PURPOSE", 2, 30, lambda step: [(printable(step.purpose), "text")], 22, grow=2, most=70
            ),
            ListColumn(
                "moves", "MOVES", 3, 30, lambda step: [(printable(step.moves), "accent")], 16, grow=3, most=90
            ),
            ListColumn(
                "cost", "COST", 4, 7, lambda step: [(f"{step.what.gpu_hours:.2f}", "text")], 6, right=True
            ),
            ListColumn("worth", "WORTH", 5, 7, _worth, 6, right=True),
            ListColumn("at", "AT", 6, 12, self._at),
            ListColumn("kind", "KIND", 7, 10, lambda step: [(printable(step.what.kind), "muted")]),
        )

    def _at(self, step: MoveRow) -> Sequence[Piece]:
        at = step.what.at if isinstance(step.what, Moved) else None
        return [(cells.clock(at, app_of(self).model.now()) if at is not None else "", "muted")]

    def question(self, client: Client) -> RebalanceView:
        return client.rebalance()

    def rows_of(self, answer: RebalanceView) -> Sequence[MoveRow]:
        self._mode = answer.mode
        return tuple(move_rows(answer))

    _mode = ""

    def nothing(self) -> Sequence[Piece]:
        """Return the text for an empty list. The text says that rebalancing is off, or that no move is worth
        its cost.
        """
        return [(OFF if self._mode == "off" else WORTHLESS, "muted")]

    def legend(self) -> Sequence[Piece]:
        if any(step.state == "proposed" for step in self.listing.rows.values()):
            auto = " · the controller carries them out automatically" if self._mode == "auto" else ""
            return [(f"COST and WORTH in GPU-hours{auto}", "muted")]
        return self.nothing() if self.listing.rows else ()

    def details(self, step: MoveRow) -> list[list[Piece]]:
        """Return the details of a proposal or a move, with one job on each line."""
        lines = [cells.fact("purpose", (printable(step.purpose, 300), "strong"))]
        if isinstance(step.what, Moved):
            return [*lines, *_moved(step.what, app_of(self).model.now())]
        return [*lines, *_proposed(step.what)]

    def subjects(self) -> Mapping[str, str]:
        step = self.here
        return {"proposal": step.key} if step is not None and step.state == "proposed" else {}

    def act_open(self) -> None:
        """Open the details of a job or a node. For a proposed move, this is the job that could start or the
        node that would be empty. For a past move, this is the job that was moved.
        """
        step = self.here
        if step is None:
            return
        what = step.what
        job = what.job if isinstance(what, Moved) else what.for_job
        if job is not None:
            app_of(self).open_job(job)
        elif what.node:
            app_of(self).open_node(what.node)


def _state(step: MoveRow) -> Piece:
    return (f"{glyphs.MOVE[step.state]} {step.state}", PARTS[step.state])


def _worth(step: MoveRow) -> Sequence[Piece]:
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
        *(cells.fact("moves", *move_line(each), (f"  {each.gpu_hours:.2f}", "muted")) for each in what.moves),
        cells.fact("then free", (f"{free}, {whole}, {spread}", "text")),
        cells.fact("proposal", (printable(f"{what.id}, {what.kind}"), "muted")),
    ]


def _moved(move: Moved, now: float) -> list[list[Piece]]:
    then = f", ran there {cells.clock(move.done_at, now)}" if move.done_at is not None else ""
    job = (
        (f"{printable(move.label)} {printable(move.name, 40)}  ", "text"),
        (printable(move.user, 24), "muted"),
    )
    return [
        cells.fact("job", *job),
        cells.fact("moves", (printable(f"{', '.join(move.origin)} → {', '.join(move.to)}", 200), "accent")),
        cells.fact("when", (f"ordered {cells.clock(move.at, now)}{then}", "muted")),
        *([cells.fact("undone", (printable(move.undone, 300), "bad"))] if move.undone else []),
    ]
