"""Shows the details of the job under the cursor beside the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from tui.app_interface import app_of
from tui.data.request_workers import Failure
from tui.job.facts import job_facts
from tui.look.styled_lines import Piece
from tui.widgets.facts import refresh_lines
from wire.api.jobs import JobDetail, JobView

REST_S: Final = 0.3
"""The details are requested when the cursor has been on the job for this many seconds."""


class JobPeek(Widget):
    """Shows the details of a job: at once those in the model, and after a request also its command and the
    reason why it waits.

    `job` returns the job under the cursor; None if there is none.
    """

    ALLOW_SELECT = False

    def __init__(self, job: Callable[[], JobView | None]) -> None:
        super().__init__()
        self._job_of = job
        self._shown: int | None = None
        self._detail: JobDetail | None = None
        self.asks = False
        """True while a request for the details of the job under the cursor is planned or under way."""
        self._rest: Timer | None = None
        self._lines: list[list[Piece]] = []

    def update(self) -> None:
        """Show the job under the cursor. If it is another job than at the last call, request its details."""
        if not self.display:
            return
        job = self._job_of()
        if job is None or job.id != self._shown:
            self._shown = None if job is None else job.id
            self._detail, self.asks = None, job is not None
            if self._rest is not None:
                self._rest.stop()
            if job is not None:
                self._rest = self.set_timer(REST_S, self._ask)
        self._draw()

    def _ask(self) -> None:
        wanted = self._shown
        if wanted is not None and self.display:
            app_of(self).requests.ask(
                lambda client: client.job(wanted), lambda answer: self._answered(wanted, answer)
            )

    def _answered(self, wanted: int, answer: JobDetail | Failure) -> None:
        if not self.is_attached or wanted != self._shown:
            return
        self.asks = False
        if isinstance(answer, JobDetail):
            self._detail = answer
            self._draw()

    def _draw(self) -> None:
        job, model = self._job_of(), app_of(self).model
        before, self._lines = self._lines, []
        if job is not None:
            place = model.places.get(job.id)
            self._lines = [[], *job_facts(job, self._detail, model, self.size.width - 2)]
            if place is not None and job.id in model.waiting:
                self._lines.append([(f" place {place.place:,} in the queue", "muted")])
        refresh_lines(self, before, self._lines)

    def on_resize(self) -> None:
        self._draw()

    def render_line(self, y: int) -> Strip:
        pieces = self._lines[y] if y < len(self._lines) else []
        paint = app_of(self).paint
        return paint.strip([("│", "line"), *pieces], self.size.width).apply_style(self.rich_style)
