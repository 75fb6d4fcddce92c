"""The tree of fair shares and their usage."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.lists.filter import exact_filter
from tui.data.lists.tenant_lists import share_state
from tui.data.request_workers import Failure
from tui.look import cells
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece, share_bar
from tui.panels.fairness import Reports, fairness_lines, fairness_reports
from tui.panels.jobs import job_lines
from tui.views.polled_list_view import PolledListView
from tui.views.view import bindings
from wire.api.jobs import JobView
from wire.api.policy.shares import ShareList, ShareView
from wire.http.client import Client
from wire.text import duration, printable

REPORTS_S: Final = 60
"""Seconds between two requests for the reports on fairness. The interval is long, because each report adds up
the accounted hours of a week.
"""


class SharesView(PolledListView[ShareView, ShareList]):
    NAME = actions.SHARES
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.SHARES)
    CHANGED_BY = frozenset({"ShareSet"})

    def columns(self) -> Sequence[ListColumn[ShareView]]:
        return (
            ListColumn("tree", "SHARE", 1, 20, self._place, 12, grow=3, most=48),
            ListColumn(
                "weight", "WEIGHT", 4, 6, lambda share: [(f"{share.weight:g}", "text")], 6, right=True
            ),
            ListColumn("part", "SHARE ┃ USED ━", 5, 21, self._against, 21),
            ListColumn("used", "USED", 2, 9, lambda share: [_amount(share.used)], 8, right=True),
            ListColumn("held", "NOW/H", 7, 7, lambda share: [_amount(share.held)], 6, right=True),
            ListColumn("factor", "FACTOR", 6, 6, _factor, 6, right=True),
            ListColumn("state", "STATE", 3, 9, lambda share: [(share_state(share), _tone(share))], 9),
            ListColumn("limits", "SOFT/HARD", 8, 11, lambda share: [(_limits(share), "muted")], right=True),
        )

    def _place(self, share: ShareView) -> Sequence[Piece]:
        if self.listing.sort != "tree":
            return [(printable(share.share), "text")]
        return [(f"{'  ' * (len(share.path) - 1)}{printable(share.path[-1])}", _level(share))]

    def _against(self, share: ShareView) -> Sequence[Piece]:
        """Return a bar of the tenant's usage with a mark at its fair share, then two percentages: the fair
        share and the usage. The usage is a part of the usage of all tenants with the same parent.
        """
        siblings = [each for each in self.listing.rows.values() if each.path[:-1] == share.path[:-1]]
        total = sum(each.used for each in siblings)
        used = share.used / total if total > 0 else 0.0
        return [*share_bar(used, share.part, 10), (f" {share.part:>4.0%} {used:>4.0%}", "muted")]

    def question(self, client: Client) -> ShareList:
        return client.shares()

    def rows_of(self, answer: ShareList) -> Sequence[ShareView]:
        return answer.shares

    def changed(self, changes: Changes) -> None:
        super().changed(changes)
        if changes.fresh:
            self._ask_reports()

    def tick(self) -> None:
        super().tick()
        if self._ticks % REPORTS_S == 0:
            self._ask_reports()

    def _ask_reports(self) -> None:
        app = app_of(self)
        if app.model.connection.state != "lost":
            now = app.model.now()
            app.requests.ask(lambda client: fairness_reports(client, now), self._take_reports)

    def _take_reports(self, answer: Reports | Failure) -> None:
        if self.is_attached and isinstance(answer, Mapping):
            self._reports = answer
            self.moved()

    _reports: Reports = MappingProxyType({})

    def more(self, width: int, height: int) -> list[list[Piece]]:
        """Return the jobs of the share under the cursor, the used and entitled GPU-hours of projects and
        users, and the waits of their jobs.
        """
        fairness = fairness_lines(self._reports, width, height)
        share = self.here
        if share is None:
            return fairness
        wanted = self._has(share)
        jobs = job_lines(
            f"jobs of {share.share}", wanted, app_of(self).model, width, height - len(fairness) - 1
        )
        return [*([[]] if jobs else []), *jobs, *fairness]

    def nothing(self) -> Sequence[Piece]:
        return [("no job was submitted yet; shares appear with the first job", "muted")]

    def legend(self) -> Sequence[Piece]:
        return [("USED is decayed usage · NOW/H is usage per hour · highest FACTOR first", "muted")]

    def details(self, share: ShareView) -> list[list[Piece]]:
        """Return the details of a tenant: its usage, and the effect of the usage on the order of its jobs in
        the queue.
        """
        path = " › ".join(printable(name, 40) for name in share.path)
        soft, hard = (
            "none" if limit is None else f"{limit:,.12g} units" for limit in (share.soft, share.hard)
        )
        return [
            cells.fact("share", (path, "strong")),
            cells.fact(
                "weight",
                (f"{share.weight:g}", "text"),
                (f": {share.part:.1%} of the shares of the same parent", "muted"),
            ),
            cells.fact(
                "used",
                (f"{share.used:,.2f} units", "text"),
                (f" of decayed usage, {share.held:,.2f} more per hour at present", "muted"),
            ),
            cells.fact("limits", (f"soft {soft}, hard {hard}", "text")),
            *([cells.fact("effect", (self._consequence(share), _tone(share)))] if share_state(share) else []),
        ]

    def _consequence(self, share: ShareView) -> str:
        if not share.stopped:
            return "above its soft limit: its jobs come after all others"
        left = None if share.until is None else share.until - app_of(self).model.now()
        until = "" if left is None else f" for {duration(left)} at most"
        return f"none of its jobs starts{until}: hard limit of {printable(share.stopped, 60)}"

    def subjects(self) -> Mapping[str, str]:
        """Return the name and the weight of the tenant under the cursor, for shell commands."""
        share = self.here
        if share is None:
            return {}
        return {"share": shlex.quote(printable(share.share)), "weight": f"{share.weight:g}"}

    def act_open(self) -> None:
        share = self.here
        if share is None:
            return
        projects, user = self._tenants(share)
        wanted = f"project:{exact_filter(*projects)}"
        app_of(self).show_jobs(f"{wanted} user:{exact_filter(user)}" if user else wanted)

    def _tenants(self, share: ShareView) -> tuple[Sequence[str], str]:
        """Return the projects of a share, and its user; an empty text for the share of all users of the
        projects.
        """
        if share.share != share.path[-1]:
            return [share.path[-2]], share.path[-1]
        # An organisation has the jobs of all its projects. For a project, `projects` is empty, because only
        # users are below a project.
        below = [each for each in self.listing.rows.values() if each.path[:-1] == share.path]
        return [each.path[-1] for each in below if each.share == each.path[-1]] or [share.path[-1]], ""

    def _has(self, share: ShareView) -> Callable[[JobView], bool]:
        """Return a function that returns True for the jobs of this share."""
        projects, user = self._tenants(share)
        return lambda job: job.project in projects and user in ("", job.user)


def _amount(units: float) -> Piece:
    return (f"{units:,.2f}", "text") if units >= 0.005 else ("·", "faint")


def _factor(share: ShareView) -> Sequence[Piece]:
    return [(f"{share.factor:.4f}", "text")]


def _limits(share: ShareView) -> str:
    shown = ["-" if limit is None else f"{limit:g}" for limit in (share.soft, share.hard)]
    return "" if shown == ["-", "-"] else "/".join(shown)


def _tone(share: ShareView) -> str:
    return "bad" if share.stopped else "warn"


def _level(share: ShareView) -> str:
    return "strong" if len(share.path) == 1 else "text"
