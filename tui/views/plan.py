"""The chart of running and expected jobs over time: by node, by job or by user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.lists.filter import FilterError, RowFilter, parse
from tui.data.request_workers import Failure, failure_text
from tui.look import cells
from tui.look.graphs import sparkline
from tui.look.styled_lines import Piece
from tui.panels.starts import plan_lines
from tui.plan.bars import DRAINED_SIGN, LIKELY_SIGN, LIMIT_SIGN, RESERVED_SIGN, RUNNING_SIGN, TAIL_SIGN
from tui.plan.chart_rows import GROUPINGS, ChartRow, chart_rows
from tui.plan.effect import PlanEffect
from tui.plan.pane import DETAIL, NAME, PlanPane
from tui.plan.timeline import SPANS_S, Timeline
from tui.views.view import View, bindings
from tui.widgets.facts import Facts
from wire.api.forecasts import CERTAIN, LIKELY, Plan, PlanEntry, PlanPoint, WhatIfAnswer
from wire.api.jobs import JobView
from wire.api.nodes import NodeView
from wire.http.client import Refused
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU
from wire.text import counted, duration, printable

EVERY_S: Final = 15
"""The number of seconds between two requests for the plan while nothing has changed."""
SOON_S: Final = 2
"""While jobs start and end, the plan is requested at most once in this many seconds."""
WITHIN_S: Final = (0.4, 2.0, 8.0)
"""The time limits, in seconds, of up to three requests for the same plan. Each request is sent if the answer
to the request before it was not complete.
"""
MARGIN: Final = 0.02
"""The fraction (0 to 1) of the chart's width that is to the left of the present time."""


class PlanView(View):
    """Shows the plan of the scheduler.

    1. While the view is shown, the plan is requested at intervals, and soon after changes of jobs or nodes.
    2. The first request has a short time limit, so that the near future is shown at once. If the answer is
       not complete, the same plan is requested again with a longer time limit.
    3. The chart is drawn again every second, because the present time moves.
    """

    NAME = actions.PLAN
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.PLAN)

    def __init__(self) -> None:
        super().__init__()
        self._pane = PlanPane(self._moved)
        self._below = Facts()
        self.plan: Plan | None = None
        self._wrong = ""
        self._asking = False
        self._dirty = False
        self._ticks = 0
        self._span_s = 43_200.0
        self._panned_s: float | None = None
        """The begin of the chart, in seconds since 1970, after the user has moved the chart; None while the
        chart follows the present time.
        """
        self._grouping = 0
        self._apart = False
        self._filter: RowFilter[PlanEntry] = RowFilter()
        self._effect: PlanEffect | None = None
        self._shows_before = False
        """True if the user has switched to the plan without the proposed change."""

    def compose(self) -> ComposeResult:
        yield self._pane
        yield self._below

    @property
    def pane(self) -> PlanPane:
        return self._pane

    # -- requests for the plan --------------------------------------------------------------------

    def _ask(self, attempt: int = 0) -> None:
        app = app_of(self)
        if self._asking or app.model.connection.state == "lost":
            return
        self._asking, self._dirty = True, False
        horizon = max(self._timeline().end - app.model.now(), SPANS_S[0])
        app.requests.ask(
            lambda client: client.plan(horizon, within_s=WITHIN_S[attempt]),
            lambda answer: self._answered(answer, attempt),
        )

    def _answered(self, answer: Plan | Failure, attempt: int) -> None:
        self._asking = False
        if not self.is_attached:
            return
        if isinstance(answer, Plan):
            self._wrong = ""
            self.plan = answer
            unfinished = not answer.complete
        else:
            # The answer "busy" means that no part of the plan could be computed within the time limit.
            unfinished = isinstance(answer, Refused) and answer.problem.code == "busy"
            self._wrong = failure_text(answer)
        if unfinished and attempt + 1 < len(WITHIN_S) and self.display:
            self._wrong = ""
            self._ask(attempt + 1)
        self._draw()
        app_of(self).refresh_lines()

    def changed(self, changes: Changes) -> None:
        """If jobs or nodes have changed, remember that the plan must be requested again. If the whole state
        was loaded or there is no plan yet, request the plan at once.
        """
        self._dirty = self._dirty or bool(changes.events or changes.fresh)
        if changes.fresh or self.plan is None:
            self._ask()
        self._draw()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % EVERY_S == 0 or (self._dirty and self._ticks % SOON_S == 0):
            self._ask()
        self._draw()

    # -- drawing the chart ------------------------------------------------------------------------

    def _timeline(self) -> Timeline:
        now = app_of(self).model.now()
        begin = now - MARGIN * self._span_s if self._panned_s is None else self._panned_s
        return Timeline(begin, self._span_s, self._pane.chart_width)

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self.display or not self.is_mounted or not self.size.width:
            return
        model = app_of(self).model
        timeline = self._timeline()
        rows = self._rows(timeline)
        self._pane.show(rows, timeline, model.now())
        lines = self._free_line(timeline)
        free = self.size.height - self._pane.HEAD - len(rows) - len(lines)
        self._below.update([*lines, *plan_lines(self.plan, model, self.size.width, free)])

    def _rows(self, timeline: Timeline) -> list[ChartRow]:
        plan = self.plan
        if plan is None:
            return []
        entries = tuple(
            entry for entry in plan.entries if entry.starts_at < timeline.end and self._filter(entry)
        )
        if self._effect is not None and not self._shows_before:
            length_s = self._span_s / 8
            entries = tuple(map(self._effect.moved_nodes, self._effect.with_new_jobs(entries, length_s)))
        nodes = {node.name: _used(node) for node in app_of(self).model.nodes}
        if self._filter:
            held = {name for entry in entries for name in entry.nodes}
            nodes = {name: used for name, used in nodes.items() if name in held}
        return chart_rows(replace(plan, entries=entries), GROUPINGS[self._grouping], nodes, apart=self._apart)

    def _free_line(self, timeline: Timeline) -> list[list[Piece]]:
        """Return the line below the chart: the free GPUs over time."""
        plan = self.plan
        if plan is None or not plan.free:
            return []
        known_until = plan.now + plan.horizon_s if plan.complete else plan.covers_until or plan.now
        values = _free_over_time(plan.free, timeline, plan.now, known_until)
        label = f" {'free GPUs':<{NAME - 1}} {gpus_text(max(0.0, plan.free[0].gpus_free)):>{DETAIL}} "
        return [[(label, "muted"), (sparkline(values, max(1.0, float(plan.gpus))), "good")]]

    def show_effect(self, answer: WhatIfAnswer | None) -> None:
        """Draw the effect of a proposed change; None draws the plan without an effect."""
        self._effect = None if answer is None else PlanEffect.of(answer)
        if answer is None:
            self._shows_before = False
        self._draw_effect()

    def compare_effect(self) -> None:
        """Switch between the plan with the proposed change and the plan without it."""
        if self._effect is not None:
            self._shows_before = not self._shows_before
            self._draw_effect()

    def _draw_effect(self) -> None:
        effect = None if self._shows_before else self._effect
        self._pane.style_of = (lambda _: None) if effect is None else effect.style
        self._pane.shifted = (lambda _: 0.0) if effect is None else effect.shifted_s
        self._draw()
        self._moved()

    # -- texts around the chart -------------------------------------------------------------------

    def note(self, *, brief: bool = False) -> Sequence[Piece]:
        """Return whether the chart shows the plan before or after a proposed change, the filter, the numbers
        of waiting jobs with and without a known start, the length of the shown time, and the grouping of the
        rows. With `brief`, the numbers are left out.
        """
        pieces: list[Piece] = []
        if self._effect is not None:
            word = "before the change" if self._shows_before else "after the change"
            pieces += [(word, "muted" if self._shows_before else "accent"), ("  ", "text")]
        if self._filter:
            pieces += [(f"/{printable(self._filter.text, 16 if brief else 30)}", "accent"), ("  ", "text")]
        plan = self.plan
        if plan is not None and not brief:
            known = sum(entry.certainty != CERTAIN for entry in plan.entries)
            pieces.append((f"{counted(known, 'start')} known", "muted"))
            if plan.without_start:
                pieces.append((f", {plan.without_start:,} not", "warn"))
            if not plan.complete:
                pieces.append((", refining…" if self._asking else ", near future only", "muted"))
            pieces.append(("  ", "text"))
        pieces.append((f"{duration(self._span_s)} by {GROUPINGS[self._grouping]}", "text"))
        return [*pieces, (" ", "text")]

    def status(self) -> Sequence[Piece]:
        """Return the error of the last request; otherwise a sentence about the job under the cursor; without
        such a job, the meaning of the symbols.
        """
        if self._wrong:
            return [(printable(self._wrong, 300), "warn")]
        entry = self._pane.entry
        if entry is None:
            return self._legend() if self.plan is not None else [("loading the plan…", "faint")]
        now = app_of(self).model.now()
        where = ", ".join(printable(name, 24) for name in entry.nodes[:4]) + (
            "…" if len(entry.nodes) > 4 else ""
        )
        return [
            (f"{printable(entry.label)} ", "strong"),
            (
                f"{printable(entry.name, 30)}  {printable(entry.user, 16)}  {gpus_text(entry.gpus)} GPUs  ",
                "text",
            ),
            (f"{_sentence(entry, now)} on {where}", "muted"),
        ]

    def _legend(self) -> list[Piece]:
        signs = (
            (RUNNING_SIGN, "runs"),
            (TAIL_SIGN, "until its limit"),
            (LIKELY_SIGN, "likely start"),
            (LIMIT_SIGN, "latest start"),
            (RESERVED_SIGN, "reserved"),
            (DRAINED_SIGN, "drained"),
        )
        return [piece for sign, word in signs for piece in ((f"{sign} ", "text"), (f"{word}  ", "muted"))]

    # -- actions of the user ----------------------------------------------------------------------

    def _moved(self) -> None:
        if self.is_attached:
            app_of(self).refresh_lines()

    def jobs(self) -> list[JobView]:
        entry = self._pane.entry
        row = None if entry is None else app_of(self).model.jobs.rows.get(entry.job)
        return [row] if row is not None else []

    def nodes(self) -> list[NodeView]:
        rows, at = self._pane.rows, self._pane.row
        row = app_of(self).model.nodes.rows.get(rows[at].node) if at < len(rows) else None
        return [row] if row is not None else []

    def act_open(self) -> None:
        entry = self._pane.entry
        if entry is not None:
            app_of(self).open_job(entry.job)
        elif self.nodes():
            app_of(self).open_node(self.nodes()[0].name)

    def act_earlier(self) -> None:
        """Move the cursor to the previous job in the row; at the first job, show earlier times."""
        if not self._pane.step_bar(-1):
            self._pan(-1)

    def act_later(self) -> None:
        """Move the cursor to the next job in the row; at the last job, show later times."""
        if not self._pane.step_bar(1):
            self._pan(1)

    def act_pan_left(self) -> None:
        self._pan(-1)

    def act_pan_right(self) -> None:
        self._pan(1)

    def _pan(self, by: int) -> None:
        begin = self._timeline().begin + by * self._span_s / 4
        self._panned_s = None if begin <= app_of(self).model.now() - MARGIN * self._span_s else begin
        self._changed_time()

    def act_follow_now(self) -> None:
        """Move the chart back to the present time, and let the chart follow the present time."""
        self._panned_s = None
        self._changed_time()

    def act_zoom_in(self) -> None:
        self._zoom(-1)

    def act_zoom_out(self) -> None:
        self._zoom(1)

    def _zoom(self, by: int) -> None:
        self._span_s = self._timeline().zoomed(by).span_s
        self._changed_time()

    def _changed_time(self) -> None:
        plan = self.plan
        if plan is None or self._timeline().end > plan.now + plan.horizon_s:
            self._ask()
        self._draw()
        self._moved()

    def act_group(self) -> None:
        """Show rows by node, by job or by user, in turn."""
        self._grouping = (self._grouping + 1) % len(GROUPINGS)
        self._pane.row = 0
        self._draw()
        self._moved()

    def act_apart(self) -> None:
        """Switch between separate rows for jobs that overlap in time, and one row for each node or user."""
        self._apart = not self._apart
        self._draw()
        self._moved()

    @property
    def filter_text(self) -> str:
        return self._filter.text

    def narrow(self, text: str) -> str:
        """Show only jobs that pass this filter. Return the error if the text is not a valid filter, otherwise
        an empty text.
        """
        try:
            self._filter = parse(text, FIELDS, _text_of)
        except FilterError as error:
            return str(error)
        self._draw()
        self._moved()
        return ""


FIELDS: Final = {
    "id": lambda entry: entry.label,
    "name": lambda entry: entry.name,
    "user": lambda entry: entry.user,
    "project": lambda entry: entry.project,
    "queue": lambda entry: entry.queue,
    "node": lambda entry: " ".join(entry.nodes),
    "gpus": lambda entry: entry.gpus,
    "start": lambda entry: entry.certainty,
}


def _text_of(entry: PlanEntry) -> str:
    return " ".join((entry.label, entry.name, entry.user, entry.project, entry.queue, *entry.nodes))


def _used(node: NodeView) -> str:
    if not node.gpus:
        return ""
    used = sum(WHOLE_GPU - gpu.free_milli for gpu in node.gpus) / WHOLE_GPU
    return f"{gpus_text(round(used, 1))}/{len(node.gpus)}"


def _sentence(entry: PlanEntry, now: float) -> str:
    """Return a sentence with the start and the end of a job, for the status line."""
    if entry.certainty == CERTAIN:
        end = "no time limit" if entry.ends_at is None else f"ends by {cells.clock(entry.ends_at, now)}"
        likely = "" if entry.likely_end_at is None else f", likely {cells.clock(entry.likely_end_at, now)}"
        return f"runs since {cells.clock(entry.starts_at, now)}, {end}{likely}"
    wait = duration(max(0.0, entry.starts_at - now))
    if entry.certainty == LIKELY:
        return f"likely starts at {cells.clock(entry.starts_at, now)} (in {wait})"
    likely = "" if entry.likely_at is None else f", likely {cells.clock(entry.likely_at, now)}"
    return f"starts by {cells.clock(entry.starts_at, now)} (in {wait}){likely}"


def _free_over_time(
    points: Sequence[PlanPoint], timeline: Timeline, now: float, known_until: float
) -> list[float | None]:
    """Return the free GPUs in each cell of the chart; None before the present time, and after the time up to
    which the plan knows all starts.
    """
    values: list[float | None] = []
    place = 0
    for cell in range(timeline.width):
        at = timeline.begin + (cell + 0.5) * timeline.cell_s
        while place + 1 < len(points) and points[place + 1].at <= at:
            place += 1
        values.append(
            max(0.0, points[place].gpus_free) if now - timeline.cell_s <= at <= known_until else None
        )
    return values
