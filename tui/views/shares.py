"""Who may have how much of the cluster, and who had it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions, cells
from tui.columns import Column
from tui.filter import exactly
from tui.paint import Piece, bar
from tui.stage import stage
from tui.tenants import share_state
from tui.views.asked import Asked
from tui.views.view import bindings
from wire.api.tenants import ShareList, ShareView
from wire.client import Client
from wire.text import duration, plain


class Shares(Asked[ShareView, ShareList]):
    """The tree of organisations, projects and users."""

    NAME = actions.SHARES
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.SHARES)
    CHANGED_BY = frozenset({"ShareSet"})

    def columns(self) -> Sequence[Column[ShareView]]:
        """Eighty columns show what one needs to know; more room shows more."""
        return (
            Column("tree", "SHARE", 1, 20, self._place, 12, grow=3, most=48),
            Column("weight", "WEIGHT", 4, 6, lambda share: [(f"{share.weight:g}", "text")], 6, right=True),
            Column("part", "PART", 5, 12, lambda share: _part(share.part, 5), 12, grow=1, most=12),
            Column("used", "USED", 2, 9, lambda share: [_amount(share.used)], 8, right=True),
            Column("held", "NOW/H", 7, 7, lambda share: [_amount(share.held)], 6, right=True),
            Column("factor", "FACTOR", 6, 6, _factor, 6, right=True),
            Column("state", "STATE", 3, 9, lambda share: [(share_state(share), _tone(share))], 9),
            Column("limits", "SOFT/HARD", 8, 11, lambda share: [(_limits(share), "muted")], right=True),
        )

    def _place(self, share: ShareView) -> Sequence[Piece]:
        if self.listing.sort != "tree":
            return [(plain(share.share), "text")]
        return [(f"{'  ' * (len(share.path) - 1)}{plain(share.path[-1])}", _level(share))]

    def question(self, client: Client) -> ShareList:
        """The whole tree."""
        return client.shares()

    def rows_of(self, answer: ShareList) -> Sequence[ShareView]:
        """Every place in it."""
        return answer.shares

    def nothing(self) -> Sequence[Piece]:
        """Shares come with jobs."""
        return [("nobody has submitted anything yet: shares come with the first job", "muted")]

    def legend(self) -> Sequence[Piece]:
        """What the figures mean."""
        return [("USED counts now and fades · NOW/H is added an hour · FACTOR 1 goes first", "muted")]

    def told(self, share: ShareView) -> list[list[Piece]]:
        """Where it stands, and what that means for its jobs."""
        path = " › ".join(plain(name, 40) for name in share.path)
        soft, hard = (
            "none" if limit is None else f"{limit:,.12g} units" for limit in (share.soft, share.hard)
        )
        return [
            cells.fact("share", (path, "strong")),
            cells.fact(
                "weight",
                (f"{share.weight:g}", "text"),
                (f": {share.part:.1%} of what there is for it and those beside it", "muted"),
            ),
            cells.fact(
                "used",
                (f"{share.used:,.2f} units", "text"),
                (f" that count now, {share.held:,.2f} more with every hour like this one", "muted"),
            ),
            cells.fact("limits", (f"soft {soft}, hard {hard}", "text")),
            *([cells.fact("so", (self._consequence(share), _tone(share)))] if share_state(share) else []),
        ]

    def _consequence(self, share: ShareView) -> str:
        if not share.stopped:
            return "past its soft limit: its jobs come after everybody else's"
        left = None if share.until is None else share.until - stage(self).model.now()
        until = "" if left is None else f" for {duration(left)} at most"
        return f"nothing of it starts{until}: the hard limit of {plain(share.stopped, 60)}"

    def subjects(self) -> Mapping[str, str]:
        """The share under the cursor, with its weight."""
        share = self.here
        if share is None:
            return {}
        return {"share": shlex.quote(plain(share.share)), "weight": f"{share.weight:g}"}

    def act_open(self) -> None:
        """Its jobs, in the queue."""
        share = self.here
        if share is None:
            return
        if share.share != share.path[-1]:
            wanted = f"project:{exactly(share.path[-2])} user:{exactly(share.path[-1])}"
        else:
            # An organisation is known by the projects below it; a project has only users there.
            below = [each for each in self.listing.rows.values() if each.path[:-1] == share.path]
            projects = [each.path[-1] for each in below if each.share == each.path[-1]]
            wanted = f"project:{exactly(*projects or [share.path[-1]])}"
        stage(self).show_jobs(wanted)


def _part(part: float, width: int) -> Sequence[Piece]:
    return [*bar(part, width), (f" {part:>6.1%}", "muted")]


def _amount(units: float) -> Piece:
    return (f"{units:,.2f}", "text") if units >= 0.005 else ("·", "faint")


def _factor(share: ShareView) -> Sequence[Piece]:
    return [(f"{share.factor:.4f}", "text")]


def _limits(share: ShareView) -> str:
    told = ["-" if limit is None else f"{limit:g}" for limit in (share.soft, share.hard)]
    return "" if told == ["-", "-"] else "/".join(told)


def _tone(share: ShareView) -> str:
    return "bad" if share.stopped else "warn"


def _level(share: ShareView) -> str:
    return "strong" if len(share.path) == 1 else "text"
