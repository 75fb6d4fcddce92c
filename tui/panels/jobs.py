"""Lists the jobs that belong to a row of another list: running jobs, then waiting jobs in queue order."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import nsmallest
from typing import Final

from tui.data.model import ClusterModel
from tui.look import cells
from tui.look.styled_lines import Piece, fit, heading, length
from wire.api.jobs import JobView
from wire.job.spec import gpus_text
from wire.names import JobState
from wire.text import duration, printable

WIDE: Final = 110
"""The place in the queue and the name of the state are shown on a screen of at least this many cells."""


def job_lines(
    title: str, belongs: Callable[[JobView], bool], model: ClusterModel, width: int, height: int
) -> list[list[Piece]]:
    """Return a panel with the jobs for which `belongs` returns True, at most `height` lines. The running job
    that ends last is the last of the running jobs. Return no lines if `height` is below 3 lines.

    Cost: one call of `belongs` for each running and each waiting job.
    """
    if height < 3:
        return []
    running = [job for job in model.running.values() if belongs(job)]
    waiting = [job for job in model.waiting.values() if belongs(job)]
    counts: list[Piece] = [
        (f"{printable(title, 60)}  ", "strong"),
        (f"{len(running):,} running", "running" if running else "muted"),
        (f"  {len(waiting):,} waiting", "queued" if waiting else "muted"),
    ]
    lines = [heading(counts, width)]
    room = height - 1
    first_running = nsmallest(room - min(len(waiting), room // 2), running, key=_end)
    first_waiting = nsmallest(room - len(first_running), waiting, key=lambda job: _place(job, model))
    lines += [_job(job, model, width) for job in (*first_running, *first_waiting)]
    return lines if len(lines) > 1 else [*lines, [(" none", "faint")]]


def _job(job: JobView, model: ClusterModel, width: int) -> list[Piece]:
    """Return the line of a job. On a narrow screen, the place in the queue is left out, and the state is only
    a symbol.
    """
    wide = width >= WIDE
    place = model.places.get(job.id)
    number = f"#{place.place:,}" if place is not None and job.state is JobState.QUEUED else ""
    state, style = cells.job_state(job)
    when, where = _when(job, model), f"  {cells.job_location_cell(job)[0]}"
    name = max(14, min(40, width // 5))
    pieces: list[Piece] = [
        (f" {fit(state, 12) if wide else state[0]} ", style),
        (f"{number:>5} " if wide else "", "faint"),
        (f"{fit(printable(job.label), 8)} ", "accent"),
        (f"{fit(printable(job.name), name)} ", "text"),
        (f"{fit(printable(job.user), 10 if wide else 8)} ", "text"),
        (f"{gpus_text(job.gpus) if job.gpus else 'no':>{5 if wide else 4}} GPUs  ", "text"),
        (when, "muted"),
    ]
    return [*pieces, (where, "muted")] if length(pieces) + len(where) <= width else pieces


def _when(job: JobView, model: ClusterModel) -> str:
    """Return how long a job has run or waited, and the latest time of its end or its expected start."""
    now = model.now()
    if job.state is JobState.QUEUED:
        place = model.places.get(job.id)
        starts = "" if place is None or place.starts_at is None else cells.clock(place.starts_at, now)
        return f"waits {duration(now - job.submitted_at)}" + (f", starts by {starts}" if starts else "")
    ran = duration(max(0.0, now - (job.started_at or now)))
    ends = "no time limit" if not job.time_limit_s else f"ends by {cells.clock(_end(job), now)}"
    return f"runs {ran}, {ends}"


def _end(job: JobView) -> float:
    return (job.started_at or job.submitted_at) + job.time_limit_s if job.time_limit_s else math.inf


def _place(job: JobView, model: ClusterModel) -> tuple[float, float]:
    place = model.places.get(job.id)
    return (math.inf if place is None else place.place, job.submitted_at)
