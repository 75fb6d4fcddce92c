"""What users, projects and queues may hold, and what they do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType

from tui import actions, cells
from tui.columns import Column
from tui.filter import exactly
from tui.forms.quota import AMOUNTS, KINDS, Amount, limit_text
from tui.paint import Piece
from tui.stage import stage
from tui.tenants import quota_state
from tui.views.asked import Asked
from tui.views.view import bindings
from wire.api.tenants import QuotaList, QuotaView
from wire.client import Client
from wire.quota import EVERYBODY, UNLIMITED
from wire.text import duration, plain


class Quotas(Asked[QuotaView, QuotaList]):
    """Everybody with a quota, or with jobs."""

    NAME = actions.QUOTAS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.QUOTAS)
    CHANGED_BY = frozenset({"QuotaSet", "QuotaUnset"})

    def columns(self) -> Sequence[Column[QuotaView]]:
        """What is used, and the hard limit behind it where there is one."""
        gpus, cpus, memory, running, queued, hours = (_used(amount) for amount in AMOUNTS)
        return (
            Column("tenant", "OF", 1, 7, lambda quota: [(quota.scope, "muted")], 7),
            Column("name", "NAME", 1, 12, lambda quota: [(plain(quota.name), "text")], 8, grow=2, most=30),
            Column("gpus", "GPUS", 2, 9, gpus, 7, right=True),
            Column("running", "RUNNING", 4, 9, running, 7, right=True),
            Column("queued", "QUEUED", 5, 9, queued, 6, right=True),
            Column("cpus", "CPUS", 6, 9, cpus, right=True),
            Column("memory", "MEMORY", 7, 11, memory, right=True),
            Column("hours", "GPU-HOURS", 8, 13, hours, right=True),
            Column("state", "STATE", 3, 9, lambda quota: [(quota_state(quota), "warn")], 9),
            Column("set", "SET", 9, 3, lambda quota: [("yes" if quota.edited else "", "muted")]),
        )

    def question(self, client: Client) -> QuotaList:
        """All of them."""
        return client.quotas()

    def rows_of(self, answer: QuotaList) -> Sequence[QuotaView]:
        """One for each."""
        self._window_s = answer.window_s
        return answer.quotas

    _window_s = 0.0

    def nothing(self) -> Sequence[Piece]:
        """No limits, and no jobs."""
        return [("no quotas, and nobody has jobs", "muted"), *self.hint("new_quota", "sets one")]

    def legend(self) -> Sequence[Piece]:
        """What the figures mean."""
        return [(f"used/limit · GPU-hours are those of the last {duration(self._window_s)}", "muted")]

    def told(self, quota: QuotaView) -> list[list[Piece]]:
        """Every limit, as a table."""
        kinds = KINDS if quota.scope == "project" else KINDS[:2]
        whose = f"  each {quota.scope} without a quota of its own" if quota.name == EVERYBODY else ""
        origin = "  set while running" if quota.edited else ""
        return [
            cells.fact(quota.scope, (plain(quota.name, 60), "strong"), (f"{whose}{origin}", "muted")),
            cells.fact("", *((f"{head:>10}", "faint") for head in ("used", *kinds))),
            *(_line(amount, quota, kinds) for amount in AMOUNTS),
        ]

    def subjects(self) -> Mapping[str, str]:
        """The quota under the cursor."""
        quota = self.here
        if quota is None:
            return {}
        gpus = limit_text(AMOUNTS[0], quota.quota.hard) or "none"
        return {"scope": quota.scope, "name": shlex.quote(plain(quota.name)), "gpus": gpus}

    def act_open(self) -> None:
        """The jobs it counts, in the queue."""
        quota = self.here
        if quota is not None:
            everybody = quota.name == EVERYBODY
            stage(self).show_jobs("" if everybody else f"{quota.scope}:{exactly(quota.name)}")


def _used(amount: Amount) -> Callable[[QuotaView], Sequence[Piece]]:
    """12/16, louder when nothing is left."""

    def cell(quota: QuotaView) -> Sequence[Piece]:
        used, hard = getattr(quota.used, amount.field) or 0, getattr(quota.quota.hard, amount.field)
        limited = hard not in (None, UNLIMITED)
        if not limited and not used:
            return [("·", "faint")]
        told = "-" if quota.name == EVERYBODY else amount.told(used)
        full = limited and used >= hard and quota.name != EVERYBODY
        return [(f"{told}/{amount.told(hard)}" if limited else told, "warn" if full else "text")]

    return cell


def _line(amount: Amount, quota: QuotaView, kinds: Sequence[str]) -> list[Piece]:
    used = getattr(quota.used, amount.field) or 0
    mine = "-" if quota.name == EVERYBODY else amount.told(used)
    limits = (limit_text(amount, getattr(quota.quota, kind)) or "·" for kind in kinds)
    return cells.fact(
        amount.word,
        (f"{mine:>10}", "text" if used else "faint"),
        *((f"{limit:>10}", "faint" if limit == "·" else "text") for limit in limits),
    )
