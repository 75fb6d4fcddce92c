"""The view of one job: its details, and tabs with its log, the reason for its waiting, its attempts, GPUs,
request and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.actions import BY_NAME
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.load_history import LoadRequests, ShownRows
from tui.data.request_workers import Failure, failure_text
from tui.job.attempts import attempt_chart, attempt_lines, attempts, event_lines
from tui.job.facts import job_facts
from tui.job.log import JobLog
from tui.job.resources import gpu_lines, spec_lines
from tui.job.tab_line import ATTEMPTS, EVENTS, GPUS, LOG, SPEC, TABS, WHY, TabLine
from tui.job.why import why_lines
from tui.look.graphs import Values
from tui.look.styled_lines import Piece, heading
from tui.panels.graphs import graph_lines
from tui.panels.jobs import job_lines
from tui.views.view import View, bindings
from tui.widgets.facts import Facts
from tui.widgets.lines_pane import LinesPane
from tui.widgets.log_pane import LogPane
from tui.widgets.scrolling_pane import Pane
from wire.api.forecasts import Explanation
from wire.api.jobs import JobDetail, JobView
from wire.api.service.cluster import EventList, EventView, GpuLoadView
from wire.http.client import Client, Refused, Unreachable
from wire.names import JobState
from wire.text import printable

REASK_S: Final = 5
LOADS_S: Final = 10
EXPLAIN_S: Final = 30
"""The seconds between two forecasts for a waiting job. The interval is long, because each forecast simulates
the queue on a copy of the engine.
"""
MOST_EVENTS: Final = 3_000
MOST_LOAD_NODES: Final = 50
LEAST_MORE: Final = 3
"""Events and lines of the log fill the free space of a tab if at least this many of them fit."""


class JobDetailsView(View):
    """Shows the details of one job. The state of the job comes from the event stream. Other details, such as
    its requested resources and the reason for its waiting, come from separate requests to the controller.

    The first tab is `why` for a waiting job, and `log` for other jobs. When a waiting job starts, the view
    goes to the log, unless the user has chosen a tab.
    """

    NAME = actions.JOB
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.JOB)

    def __init__(self, job: int) -> None:
        super().__init__()
        self.job = job
        self.output = LogPane(lambda direction: self.job_log.turn_page(direction))
        self.job_log = JobLog(self, job, self.output, self._log_changed)
        self.tab = LOG
        self._chosen = False
        """True if the user has chosen a tab, so that the view does not change the tab by itself."""
        self._lines = LinesPane()
        self._lines.display = False
        self._facts = Facts()
        self._tabs = TabLine(lambda: self.tab, self.open_tab, self._tab_note)
        self._detail: JobDetail | None = None
        self._explanation: Explanation | None = None
        self._events: tuple[EventView, ...] = ()
        self._gpu_loads: Mapping[str, Mapping[str, Values]] = {}
        self._loads = LoadRequests(lambda: app_of(self), self._shown_rows, self._redraw)
        self._wrong = ""
        self._ticks = 0
        self._shape: tuple[JobState, int, str] | None = None

    def compose(self) -> ComposeResult:
        yield self._facts
        yield self._tabs
        yield self.output
        yield self._lines

    def on_mount(self) -> None:
        """Request the details that the event stream does not carry."""
        self._ask()
        self.job_log.follow()

    def close(self) -> None:
        self.job_log.close()

    # -- display of the job ---------------------------------------------------------

    @property
    def pane(self) -> Pane:
        return self.output if self.tab == LOG else self._lines

    @property
    def row(self) -> JobView | None:
        """Return the last known state of the job; None if the controller has not sent a state of this job."""
        row = app_of(self).model.jobs.rows.get(self.job)
        return row or (self._detail.job if self._detail else None)

    def jobs(self) -> list[JobView]:
        return [self.row] if self.row else []

    def title(self) -> str:
        row = self.row
        return printable(f"{row.label} {row.name}", 32) if row else f"job {self.job}"

    def status(self) -> Sequence[Piece]:
        """Return the error of the last request for the status line; empty if the request succeeded."""
        return [(self._wrong, "warn")] if self._wrong else []

    def changed(self, _changes: Changes) -> None:
        """If the state, the attempt or the detail text of the job has changed, request its details, its
        forecast and its events again.
        """
        row = self.row
        shape = (row.state, row.attempt, row.detail) if row else None
        if shape != self._shape:
            begun = self._shape is None or (shape and self._shape and shape[:2] != self._shape[:2])
            self._shape, self._explanation = shape, None
            if row is not None and not self._chosen:
                self._show_tab(WHY if row.state is JobState.QUEUED else LOG)
            self._ask()
            self._request_forecast()
            self._request_events()
            if begun and self.job_log.has_ended:
                self.job_log.follow()
            self.call_after_refresh(self._loads.tick)
        self._redraw()

    def tick(self) -> None:
        """Update the shown times. At intervals, also request the details of the job, its forecast and the
        loads of its GPUs again. Called once a second.
        """
        self._ticks += 1
        row = self.row
        if self._ticks % REASK_S == 0 and row is not None and not row.state.terminal:
            self._ask()
        if self._ticks % EXPLAIN_S == 0:
            self._request_forecast()
        if self._ticks % LOADS_S == 0:
            self._request_loads()
        self._loads.tick()
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        row, width = self.row, self.size.width
        if row is not None and width:
            most = max(3, self.size.height // 2)
            model = app_of(self).model
            self._facts.update(job_facts(row, self._detail, model, width, brief=True)[:most])
            if self.tab != LOG:
                lines = self._tab_lines(row, width - 1)
                lines += self._more_lines(
                    row, width - 1, self.size.height - len(self._facts.lines) - 1 - len(lines)
                )
                self._lines.show(lines, follow=self.tab == EVENTS)
        self._tabs.refresh_changed()

    def _tab_lines(self, row: JobView, width: int) -> list[list[Piece]]:
        """Return the lines of the shown tab."""
        model, now = app_of(self).model, app_of(self).model.now()
        found = attempts(self._events)
        if self.tab == WHY:
            return why_lines(row, self._detail, self._explanation, found, self._advice(), now, width)
        if self.tab == ATTEMPTS:
            return attempt_lines(row, found, now, width)
        if self.tab == GPUS:
            return gpu_lines(row, self._detail, self._gpu_loads, model, width)
        return spec_lines(self._detail, width) if self.tab == SPEC else event_lines(self._events, now)

    def _more_lines(self, row: JobView, width: int, height: int) -> list[list[Piece]]:
        """Return lines for the free space of a tab: on the tab of the attempts, these as bars; on all tabs
        the last events, the last lines of the log, and for a waiting job the running jobs and the graphs of
        the cluster.
        """
        if self.tab == EVENTS:
            return []
        now = app_of(self).model.now()
        lines = attempt_chart(row, attempts(self._events), now, width) if self.tab == ATTEMPTS else []
        lines = lines if len(lines) <= height else []
        before = len(lines)
        height -= before
        log = self.output.last_lines(max(height // 2 - 2, height - len(self._events) - 4))
        room = height - len(log) - (2 if log else 0) - 2
        if room >= LEAST_MORE and self._events:
            events = event_lines(self._events[-room:], now)
            lines += [[], heading([("events of the job", "strong")], width), *events]
        if height - 2 >= LEAST_MORE and log:
            lines += [[], heading([("end of the log", "strong")], width)]
            lines += [[(f"  {printable(line, width)}", "muted")] for line in log]
        return lines if log else [*lines, *self._cluster_lines(width, before + height - len(lines))]

    def _cluster_lines(self, width: int, height: int) -> list[list[Piece]]:
        """Return the running jobs, in the order of their latest ends, and the graphs of the cluster."""
        model = app_of(self).model
        jobs = job_lines(
            "the cluster by latest end",
            lambda job: job.state is not JobState.QUEUED,
            model,
            width,
            height // 2,
        )
        lines = [[], *jobs] if jobs else []
        return [*lines, *graph_lines(model, width, height - len(lines))]

    def _log_changed(self) -> None:
        self._tabs.refresh()

    def _tab_note(self) -> Sequence[Piece]:
        return self.job_log.note() if self.tab == LOG else ()

    # -- tabs ---------------------------------------------------------------------------

    def open_tab(self, tab: str) -> None:
        """Show a tab because the user has chosen it."""
        self._chosen = True
        self._show_tab(tab)

    def _show_tab(self, tab: str) -> None:
        if tab == self.tab:
            return
        self.tab = tab
        self.output.display, self._lines.display = tab == LOG, tab != LOG
        self._lines.scroll_lines(0)
        if tab == GPUS:
            self._request_loads()
        self._redraw()
        if tab == EVENTS:
            self._lines.scroll_lines(len(self._events))
        if self.is_attached and app_of(self).view is self:
            self.screen.set_focus(self.pane)

    def act_tab_right(self) -> None:
        self.open_tab(TABS[(TABS.index(self.tab) + 1) % len(TABS)])

    def act_tab_left(self) -> None:
        self.open_tab(TABS[TABS.index(self.tab) - 1])

    # -- changes that would start the job ------------------------------------------------

    def _advice(self) -> list[tuple[str, str]]:
        """Return the changes, such as a smaller request, that would start the waiting job now. Each change is
        a sentence and a shell command.
        """
        row, explanation = self.row, self._explanation
        if row is None or explanation is None:
            return []
        write = app_of(self).cli.command_of
        return [(each.sentence, printable(write(each, row.label), 1_000)) for each in explanation.easings]

    def advised(self) -> list[str]:
        """Return the shell commands of the changes that would start the job now."""
        return [command for _, command in self._advice()]

    def act_apply_advice(self) -> None:
        """Ask the user to confirm the first change that would start the job now, and then make the change."""
        app, row, advice = app_of(self), self.row, self._advice()
        if row is None or not advice or self._explanation is None:
            app.show_message("there is no advice: no small change would start the job now", "warn")
        else:
            app.apply_advice(row, self._explanation.easings[0], advice[0][1])

    def act_first_advice(self) -> None:
        """Ask the user to confirm the first change that would start the job now. If there is no such change,
        show the queue, as this key does in other views.
        """
        app = app_of(self)
        app.act(BY_NAME["apply_advice"].name if self._advice() else actions.QUEUE)

    # -- requests to the controller ----------------------------------------------------

    def _ask(self) -> None:
        app_of(self).requests.ask(lambda client: client.job(self.job), self._answered)

    def _answered(self, answer: JobDetail | Failure) -> None:
        if not self.is_attached:
            return
        if isinstance(answer, (Unreachable, Refused)):
            self._wrong = failure_text(answer)
        else:
            self._detail, self._wrong = answer, ""
            self._redraw()
        app_of(self).refresh_lines()

    def _request_forecast(self) -> None:
        """Request the latest start of the job and the changes that would start the job now. For a running
        job, request once the points of its nodes at its placement.
        """
        row, known = self.row, self._explanation
        if row is not None and (row.state is JobState.QUEUED or (known is None and not row.state.terminal)):
            app_of(self).requests.ask(lambda client: client.explain(self.job), self._explained)

    def _explained(self, answer: Explanation | Failure) -> None:
        if self.is_attached and isinstance(answer, Explanation):
            self._explanation = answer
            self._redraw()

    def _request_events(self) -> None:
        app_of(self).requests.ask(lambda client: events_of(client, self.job), self._take_events)

    def _take_events(self, answer: tuple[EventView, ...] | Failure) -> None:
        if self.is_attached and isinstance(answer, tuple):
            self._events = answer
            self._redraw()

    def _shown_rows(self) -> ShownRows:
        row = self.row
        return ShownRows(
            jobs=(row.id,) if row is not None and row.gpus and row.state is JobState.RUNNING else ()
        )

    def _request_loads(self) -> None:
        """Request the loads of the job's GPUs, if their tab is shown."""
        row = self.row
        if self.tab == GPUS and row is not None and row.held:
            nodes = [held.node for held in row.held][:MOST_LOAD_NODES]
            app_of(self).requests.ask(
                lambda client: client.gpu_loads(nodes=nodes, points=60), self._take_loads
            )

    def _take_loads(self, answer: GpuLoadView | Failure) -> None:
        if self.is_attached and isinstance(answer, GpuLoadView):
            self._gpu_loads = answer.nodes
            self._redraw()

    # -- actions on the log --------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.output.filter_text

    def narrow(self, text: str) -> str:
        wrong = self.output.filter(text)
        self._tabs.refresh()
        return wrong

    def undo(self) -> bool:
        """Remove the filter of the log. If there is no filter, end the search and show the end of the log."""
        return super().undo() or self.job_log.undo()

    def act_find(self) -> None:
        """Let the user type a text, and search for the text in the whole log."""
        self.open_tab(LOG)
        app_of(self).ask_text("text in the whole log", self.job_log.find)

    def act_next_match(self) -> None:
        self.open_tab(LOG)
        self.job_log.next_match()

    def act_match_before(self) -> None:
        self.open_tab(LOG)
        self.job_log.match_before()

    def act_top(self) -> None:
        """Show the first line. On the tab of the log, fetch the beginning of the log if it is not loaded."""
        if self.tab != LOG or not self.job_log.fetch_begin():
            super().act_top()

    def act_end(self) -> None:
        """Show the end of the log and follow it. In other tabs, move the cursor to the last line."""
        if self.tab != LOG or not self.job_log.to_end():
            super().act_end()

    def act_output(self) -> None:
        self.open_tab(LOG)
        self.job_log.switch_stream()

    def act_follow(self) -> None:
        """Start following the log. While the log is followed, the view shows new lines at once."""
        self.open_tab(LOG)
        if not self.job_log.to_end():
            self.output.jump(self.output.total)
        self._tabs.refresh()

    def act_wrap(self) -> None:
        self.output.toggle_wrap()
        self._tabs.refresh()

    def act_error(self) -> None:
        """Scroll to the next line that contains an error."""
        self.open_tab(LOG)
        if not self.output.next_trouble():
            app_of(self).show_message("no error below")
        self._tabs.refresh()


def events_of(client: Client, job: int) -> tuple[EventView, ...]:
    """Return the events of a job, oldest first, at most MOST_EVENTS of them."""
    found: list[EventView] = []
    page: EventList = client.events(job=job)
    while page.events and len(found) < MOST_EVENTS:
        found += page.events
        page = client.events(after=page.events[-1].seq, job=job)
    return tuple(found)
