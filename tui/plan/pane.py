"""The widget that paints the chart of the view Plan. The cursor is on one job of one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.strip import Strip

from tui.app_interface import app_of
from tui.look.styled_lines import Piece, fit
from tui.plan.bars import bar_end, draw_row, user_style
from tui.plan.chart_rows import ChartRow
from tui.plan.timeline import Timeline
from tui.widgets.scrolling_pane import Pane
from wire.api.forecasts import PlanEntry
from wire.text import printable

NAME, DETAIL = 14, 6
"""The widths of the name and the detail to the left of the chart, in terminal cells."""


class PlanPane(Pane):
    """Paints rows of the chart below a line of times.

    Invariant: the cursor stays on the job to which the user moved it, also when the plan changes, as long as
    the plan has the job. Cost: one step for each job of each visible row.
    """

    HEAD = 1

    def __init__(self, moved: Callable[[], None]) -> None:
        super().__init__()
        self.rows: Sequence[ChartRow] = ()
        self.timeline = Timeline(0.0, 43_200.0, 1)
        self.now = 0.0
        self.style_of: Callable[[PlanEntry], str | None] = lambda _: None
        self.shifted: Callable[[PlanEntry], float] = lambda _: 0.0
        self.row = 0
        self.job: int | None = None
        """The id of the job under the cursor; None if the row has no job in the shown time."""
        self._cursor_moved = moved

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def chart_width(self) -> int:
        return max(10, self.size.width - 1 - NAME - DETAIL - 2)

    def show(self, rows: Sequence[ChartRow], timeline: Timeline, now: float) -> None:
        """Paint these rows. If the job under the cursor is now in another row, the cursor follows the job."""
        before = self.job
        self.rows, self.timeline, self.now = rows, timeline, now
        self.row = max(0, min(self.row, len(rows) - 1))
        if self.job is not None and rows and all(entry.job != self.job for entry in rows[self.row].bars):
            found = [
                number for number, row in enumerate(rows) if any(entry.job == self.job for entry in row.bars)
            ]
            if found:
                self.row = min(found, key=lambda number: abs(number - self.row))
        self._keep_job()
        self.scroll_lines(self.top)
        self.refresh_changed()
        if self.job != before:
            self._cursor_moved()

    @property
    def entry(self) -> PlanEntry | None:
        """Return the job under the cursor; None if there is none."""
        if not self.rows:
            return None
        return next((entry for entry in self.rows[self.row].bars if entry.job == self.job), None)

    def step(self, by: int) -> None:
        self.jump(self.row + by)

    def jump(self, index: int) -> None:
        if not self.rows:
            return
        before = self.entry
        self.row = max(0, min(index, len(self.rows) - 1))
        if before is not None:
            near = [entry for entry in self.rows[self.row].bars if self._visible(entry)]
            same = min(near, key=lambda entry: abs(entry.starts_at - before.starts_at), default=None)
            self.job = None if same is None else same.job
        self._keep_job()
        self._follow()

    def step_bar(self, by: int) -> bool:
        """Move the cursor to the next job of the row (`by` = 1) or to the previous job (`by` = -1). Return
        False if the row has no such job in the shown time.
        """
        bars = self._bars()
        places = [place for place, entry in enumerate(bars) if entry.job == self.job]
        place = (places[0] if places else -1) + by
        if not 0 <= place < len(bars):
            return False
        self.job = bars[place].job
        self._follow()
        return True

    def find(self, wanted: Callable[[PlanEntry], bool]) -> bool:
        """Move the cursor to the next row with a job for which `wanted` returns True, and to this job. After
        the last row, continue with the first row. Return False if no row has such a job.
        """
        for offset in range(1, len(self.rows) + 1):
            number = (self.row + offset) % len(self.rows)
            entry = next((entry for entry in self.rows[number].bars if wanted(entry)), None)
            if entry is not None:
                self.row, self.job = number, entry.job
                self._follow()
                return True
        return False

    def _follow(self) -> None:
        if self.row < self.top:
            self.scroll_lines(self.row)
        elif self.row >= self.top + self.page:
            self.scroll_lines(self.row - self.page + 1)
        self.refresh_changed()
        self._cursor_moved()

    def _visible(self, entry: PlanEntry) -> bool:
        return entry.starts_at < self.timeline.end and bar_end(entry) > self.timeline.begin

    def _bars(self) -> list[PlanEntry]:
        shown = [entry for entry in self.rows[self.row].bars if self._visible(entry)] if self.rows else []
        return sorted(shown, key=lambda entry: (entry.starts_at, entry.job))

    def _keep_job(self) -> None:
        """If the job under the cursor is not visible in the row of the cursor, move the cursor to the first
        visible job of this row.
        """
        bars = self._bars()
        if all(entry.job != self.job for entry in bars):
            self.job = bars[0].job if bars else None

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the job under the mouse; a second click opens the job."""
        number = self.top + event.y - self.HEAD
        if event.y < self.HEAD or number >= len(self.rows):
            return
        at = self.timeline.begin + (event.x - NAME - DETAIL - 2 + 0.5) * self.timeline.cell_s
        hit = [entry for entry in self.rows[number].bars if entry.starts_at <= at < bar_end(entry)]
        again = number == self.row and any(entry.job == self.job for entry in hit)
        self.row = number
        self.job = max(hit, key=lambda entry: entry.gpus).job if hit else None
        self._keep_job()
        self._follow()
        if again:
            app_of(self).act("open")

    def paint_head(self, y: int, width: int) -> Strip:  # noqa: ARG002 - the head has one line
        left = " " * (NAME + DETAIL + 2)
        return app_of(self).paint.strip([(left, "text"), (self.timeline.line(self.now), "head")], width)

    def paint_line(self, index: int, width: int) -> Strip:
        row, here = self.rows[index], index == self.row
        name = fit(f" {printable(row.name, 30)}", NAME)
        pieces: list[Piece] = [
            ("▌" + name[1:] if here else name, "strong" if here else "text"),
            (f" {fit(printable(row.detail, 20), DETAIL, right=len(row.detail) <= DETAIL)} ", "muted"),
            *draw_row(row, self.timeline, self.now, self._style, self.shifted),
        ]
        return app_of(self).paint.strip(pieces, width)

    def _style(self, entry: PlanEntry) -> str:
        concerned = self.style_of(entry)
        if concerned is not None:
            return concerned
        return "picked" if entry.job == self.job else user_style(entry.user)
