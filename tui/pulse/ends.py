"""Draws the panels of the view Pulse about ended jobs: the last ends, and the last failures with causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tui.data.model import KEPT_ENDS
from tui.look import cells, glyphs
from tui.look.styled_lines import Piece, fit
from tui.pulse.alarms import FAILED_FOR_S
from tui.pulse.panel import Jump, PanelRow, title
from wire.api.jobs import JobView
from wire.names import JobState
from wire.text import duration, printable

AT, USER, RAN = 9, 10, 11
"""The widths of the time of the end of a job, of its user, and of its run time, in terminal cells."""
OTHER, LEAST_NAME = 3 + 7 + 1 + AT, 9
"""The width of all parts of a row without the name and the text, and the least width of the name."""
WITH_USER: Final = 28
"""The user is shown if the name and the user have at least this many cells."""


def last_ends(ended: Sequence[JobView], now: float, width: int, height: int) -> list[PanelRow]:
    """Return the panel of the jobs that have ended last. `ended` has the newest job first."""
    recent = [job for job in ended if (job.ended_at or 0.0) > now - FAILED_FOR_S]
    count = f"{len(recent):,}{' or more' if len(recent) >= KEPT_ENDS else ''} in the last hour"
    heading: list[Piece] = [("last ends ", "strong"), (count, "muted")]
    rows = [title(heading, width, Jump("filter", "state:completed|failed|cancelled"))]
    for job in ended[: height - 1]:
        ran = (
            "" if job.started_at is None or job.ended_at is None else duration(job.ended_at - job.started_at)
        )
        rows.append(_row(job, f"ran {ran}" if ran else "did not run", "muted", now, width, RAN))
    return rows if len(rows) > 1 else [*rows, PanelRow([(" no job has ended yet", "faint")])]


def failures(ended: Sequence[JobView], now: float, width: int, height: int) -> list[PanelRow]:
    """Return the panel of the failed jobs among the jobs that have ended last, with the cause of each
    failure. `ended` has the newest job first.
    """
    failed = [job for job in ended if job.state is JobState.FAILED]
    rows = [title([("last failures", "strong")], width, Jump("filter", "state:failed"))]
    for job in failed[: height - 1]:
        cause = job.detail or str(cells.job_location_cell(job)[0])
        rows.append(_row(job, cause, "failed", now, width, width * 2 // 5))
    sign = glyphs.JOB[JobState.COMPLETED]
    return rows if failed else [*rows, PanelRow([(f" {sign} no failure among the last ends", "good")])]


def _row(job: JobView, text: str, style: str, now: float, width: int, text_width: int) -> PanelRow:
    """Return a row with a job, a text about its end, and the time of its end. The time since the end would
    change every second, so each row would be sent to the terminal every second.
    """
    at = fit(f" {cells.clock(job.ended_at, now)}", AT)
    text_width = min(text_width, width - OTHER - LEAST_NAME)
    room = width - OTHER - text_width
    user = fit(f" {printable(job.user)}", USER) if room >= WITH_USER else ""
    return PanelRow(
        [
            (f" {glyphs.JOB[job.state]} ", cells.job_part(job)),
            (f"{fit(printable(job.label), 6)} ", "accent"),
            (fit(printable(job.name), room - len(user)), "text"),
            (f"{user} ", "muted"),
            (fit(printable(text), text_width), style),
            (at, "faint"),
        ],
        Jump("job", job.id),
    )
