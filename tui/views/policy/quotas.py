"""The list of quotas and their usage."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.lists.filter import exact_filter
from tui.data.lists.tenant_lists import quota_state
from tui.forms.quota import KINDS
from tui.look import cells
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.panels.jobs import job_lines
from tui.panels.limits import limit_lines
from tui.views.polled_list_view import PolledListView
from tui.views.view import bindings
from wire.api.jobs import JobView
from wire.api.policy.quotas import QuotaList, QuotaView, model_use_text
from wire.cluster.quota import AMOUNTS, ANY_NAME, UNLIMITED, Amount
from wire.http.client import Client
from wire.names import SHOWN_STATES
from wire.text import duration, printable

JOBS_SHOWN: Final = 16


class QuotasView(PolledListView[QuotaView, QuotaList]):
    """The list of users, projects and queues that have a quota or jobs."""

    NAME = actions.QUOTAS
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.QUOTAS)
    CHANGED_BY = frozenset({"QuotaSet", "QuotaUnset"})

    def columns(self) -> Sequence[ListColumn[QuotaView]]:
        """Return the columns of the list. The column of a resource shows the usage, and the hard limit if
        there is one.
        """
        gpus, cpus, memory, running, queued, hours = (_used(amount) for amount in AMOUNTS)
        return (
            ListColumn("tenant", "OF", 1, 7, lambda quota: [(quota.scope, "muted")], 7),
            ListColumn(
                "name", "NAME", 1, 12, lambda quota: [(printable(quota.name), "text")], 8, grow=2, most=30
            ),
            ListColumn("gpus", "GPUS", 2, 9, gpus, 7, right=True),
            ListColumn("running", "RUNNING", 4, 9, running, 7, right=True),
            ListColumn("queued", "QUEUED", 5, 9, queued, 6, right=True),
            ListColumn("cpus", "CPUS", 6, 9, cpus, right=True),
            ListColumn("memory", "MEMORY", 7, 11, memory, right=True),
            ListColumn("hours", "GPU-HOURS", 8, 13, hours, right=True),
            ListColumn("state", "STATE", 3, 9, lambda quota: [(quota_state(quota), "warn")], 9),
            ListColumn("set", "SET", 9, 3, lambda quota: [("yes" if quota.edited else "", "muted")]),
        )

    def question(self, client: Client) -> QuotaList:
        return client.quotas()

    def rows_of(self, answer: QuotaList) -> Sequence[QuotaView]:
        self._window_s = answer.window_s
        return answer.quotas

    _window_s = 0.0

    def nothing(self) -> Sequence[Piece]:
        return [("no quotas, and no jobs", "muted"), *self.hint("new_quota", "sets one")]

    def legend(self) -> Sequence[Piece]:
        return [(f"used/limit · GPU-hours of the last {duration(self._window_s)}", "muted")]

    def details(self, quota: QuotaView) -> list[list[Piece]]:
        models = printable(model_use_text(quota), 100)
        kinds = KINDS if quota.scope == "project" else KINDS[:2]
        tenants = f"  each {quota.scope} without a quota of its own" if quota.name == ANY_NAME else ""
        origin = "  set at run time" if quota.edited else ""
        return [
            cells.fact(quota.scope, (printable(quota.name, 60), "strong"), (f"{tenants}{origin}", "muted")),
            cells.fact("", *((f"{head:>10}", "faint") for head in ("used", *kinds))),
            *(_line(amount, quota, kinds) for amount in AMOUNTS),
            *([cells.fact("by model", (models, "text"))] if models else []),
            *(
                cells.fact("" if number else "policy", (printable(phrase, 100), "text"))
                for number, phrase in enumerate(quota.policy)
            ),
            *([cells.fact("budget", (printable(quota.budget, 100), "text"))] if quota.budget else []),
        ]

    def more(self, width: int, height: int) -> list[list[Piece]]:
        """Return the quotas whose usage is nearest to a limit, and the jobs of the quota under the cursor."""
        limits = limit_lines(self.listing.rows.values(), width, height // 2)
        quota = self.here
        if quota is None or quota.name == ANY_NAME:
            return limits
        room = min(JOBS_SHOWN, height - len(limits) - 1)
        title = f"jobs of {quota.scope} {quota.name}"
        jobs = job_lines(title, lambda job: _counts(quota, job), app_of(self).model, width, room)
        return [*limits, *([[]] if jobs else []), *jobs]

    def subjects(self) -> Mapping[str, str]:
        quota = self.here
        if quota is None:
            return {}
        gpus = AMOUNTS[0].limit_text(quota.quota.hard) or "none"
        return {"scope": quota.scope, "name": shlex.quote(printable(quota.name)), "gpus": gpus}

    def act_open(self) -> None:
        """Show the list of jobs with a filter for the jobs that count towards the quota: the jobs of its
        user, project or queue that have not ended. Ended jobs count only towards a limit of GPU-hours, so
        they are shown only if the quota has such a limit. For the quota `*`, show the jobs of all tenants.
        """
        quota = self.here
        if quota is None:
            return
        kinds = [getattr(quota.quota, kind).gpu_hours for kind in KINDS]
        states = [state.value.lower() for state in SHOWN_STATES if not state.terminal]
        terms = [
            *([] if quota.name == ANY_NAME else [f"{quota.scope}:{exact_filter(quota.name)}"]),
            *(
                [f"state:{exact_filter(*states)}"]
                if all(hours in (None, UNLIMITED) for hours in kinds)
                else []
            ),
        ]
        app_of(self).show_jobs(" ".join(terms))


def _counts(quota: QuotaView, job: JobView) -> bool:
    """Return True if the quota counts the job."""
    return quota.name == {"user": job.user, "project": job.project, "queue": job.queue}.get(quota.scope)


def _used(amount: Amount) -> Callable[[QuotaView], Sequence[Piece]]:
    """Return the function that computes a cell of the column for this resource. The cell shows the usage and
    the limit of a quota, such as 12/16, and is emphasised if the usage has reached the limit.
    """

    def cell(quota: QuotaView) -> Sequence[Piece]:
        counted, hard = quota.counted(amount.field), getattr(quota.quota.hard, amount.field)
        limited = hard not in (None, UNLIMITED)
        if not limited and not counted:
            return [("·", "faint")]
        full = limited and counted >= hard and quota.name != ANY_NAME
        return [(quota.use_text(amount), "warn" if full else "text")]

    return cell


def _line(amount: Amount, quota: QuotaView, kinds: Sequence[str]) -> list[Piece]:
    used = getattr(quota.used, amount.field) or 0
    shown = "-" if quota.name == ANY_NAME else amount.text(used)
    limits = (amount.limit_text(getattr(quota.quota, kind)) or "·" for kind in kinds)
    return cells.fact(
        amount.word,
        (f"{shown:>10}", "text" if used else "faint"),
        *((f"{limit:>10}", "faint" if limit == "·" else "text") for limit in limits),
    )
