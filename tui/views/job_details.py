"""The view of one job: its details, the reason for its waiting, and its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.job_facts import job_facts
from tui.data.log_tail import LogTail
from tui.data.request_workers import Failure, failure_text
from tui.look.paint import Piece
from tui.views.view import View, bindings
from tui.widgets.facts import Facts
from tui.widgets.line import FrameLine
from tui.widgets.log_pane import LogPane
from wire.api.forecasts import Explanation
from wire.api.jobs import JobDetail, JobView
from wire.http.client import Refused, Unreachable
from wire.names import JobState
from wire.text import counted, printable

REASK_S: Final = 5
EXPLAIN_S: Final = 30
"""The seconds between two forecasts for a waiting job. The interval is long, because the controller copies
its whole state for each forecast.
"""


class LogTitle(FrameLine):
    """The line above the log. It shows stdout or stderr, the number of lines, and whether the view follows
    new lines.
    """

    def __init__(self, job: JobDetailsView) -> None:
        super().__init__()
        self._job = job

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return the texts of the line, such as ── stdout  stderr ── 1,204 lines ── following ──."""
        job, log = self._job, self._job.output
        pieces: list[Piece] = [("── ", "line")]
        for name in ("stdout", "stderr"):
            pieces += [(name, "sorted" if name == job.stream else "faint"), ("  ", "text")]
        details = counted(log.count, "line") + (
            "  following" if log.following and not job.output_over else ""
        )
        details += "  wrapped" if log.wrapping else ""
        details += f"  /{printable(log.filter_text, 30)}" if log.filter_text else ""
        pieces += [(details, "muted"), (f"  {job.output_note}" if job.output_note else "", "warn")]
        return [*pieces, (" ", "text"), ("─" * width, "line")]


class JobDetailsView(View):
    """Shows the details and the log of one job. The state of the job comes from the event stream. Other
    details, such as its requested resources and the reason for its waiting, come from separate requests to
    the controller.
    """

    NAME = actions.JOB
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.JOB)

    def __init__(self, job: int) -> None:
        super().__init__()
        self.job = job
        self.stream = "stdout"
        self.output = LogPane()
        self.output_note, self.output_over = "", False
        self._facts = Facts()
        self._title = LogTitle(self)
        self._detail: JobDetail | None = None
        self._explanation: Explanation | None = None
        self._wrong = ""
        self._tail: LogTail | None = None
        self._ticks = 0
        self._shape: tuple[JobState, int, str] | None = None

    def compose(self) -> ComposeResult:
        yield self._facts
        yield self._title
        yield self.output

    def on_mount(self) -> None:
        """Request the details that the event stream does not carry."""
        self._ask()
        self._follow_log()

    def close(self) -> None:
        if self._tail is not None:
            self._tail.stop()

    # -- display --------------------------------------------------------------------

    @property
    def pane(self) -> LogPane:
        return self.output

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
        """Request the details of the job again if the job has changed. Its log and the reason for its waiting
        may have changed too.
        """
        row = self.row
        shape = (row.state, row.attempt, row.detail) if row else None
        if shape != self._shape:
            begun = self._shape is None or (shape and self._shape and shape[:2] != self._shape[:2])
            self._shape, self._explanation = shape, None
            self._ask()
            self._request_forecast()
            if begun and (self._tail is None or self.output_over):
                self._follow_log()
        self._redraw()

    def tick(self) -> None:
        """Update the shown times. At intervals, also request the details of the job and its forecast
        again.
        """
        self._ticks += 1
        row = self.row
        if self._ticks % REASK_S == 0 and row is not None and not row.state.terminal:
            self._ask()
        if self._ticks % EXPLAIN_S == 0:
            self._request_forecast()
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        row, width = self.row, self.size.width
        most = max(3, self.size.height * 3 // 5)
        if row is not None and width:
            model = app_of(self).model
            lines = job_facts(row, self._detail, self._explanation, self._advice(), model, width)
            self._facts.update(lines[:most])
        self._title.refresh()

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

    # -- requests ----------------------------------------------------------------------

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
        """Request the latest start of the job, and the changes that would start the job now."""
        if self.row is not None and self.row.state is JobState.QUEUED:
            app_of(self).requests.ask(lambda client: client.explain(self.job), self._explained)

    def _explained(self, answer: Explanation | Failure) -> None:
        if self.is_attached and isinstance(answer, Explanation):
            self._explanation = answer
            self._redraw()

    def _follow_log(self) -> None:
        if self._tail is not None:
            self._tail.stop()
        app = app_of(self)
        tail = LogTail(app.connect, self.job, self.stream, lambda: app.deliver(lambda: self._arrived(tail)))
        self._tail, self.output_over, self.output_note = tail, False, ""
        tail.start()

    def _arrived(self, tail: LogTail) -> None:
        if tail is not self._tail or not self.is_attached:
            return
        piece = tail.take()
        self.output.add(piece)
        self.output_note, self.output_over = printable(piece.note, 80), piece.over
        self._title.refresh()

    # -- actions ------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.output.filter_text

    def narrow(self, text: str) -> str:
        wrong = self.output.filter(text)
        self._title.refresh()
        return wrong

    def act_output(self) -> None:
        self.stream = "stderr" if self.stream == "stdout" else "stdout"
        self.output.following = True
        self._follow_log()
        self._title.refresh()

    def act_follow(self) -> None:
        """Start or stop following the log. While the log is followed, the view shows new lines at once."""
        self.output.jump(self.output.total)
        self._title.refresh()

    def act_wrap(self) -> None:
        self.output.toggle_wrap()
        self._title.refresh()

    def act_error(self) -> None:
        """Scroll to the next line that contains an error."""
        if not self.output.next_trouble():
            app_of(self).show_message("no error below")
        self._title.refresh()
