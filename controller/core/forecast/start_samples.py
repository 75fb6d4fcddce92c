"""Start estimates that the controller makes at intervals, to compare them with the real starts later."""

from __future__ import annotations

from controller.core.engine import Engine
from controller.core.forecast.forecast import forecast, fork, with_run_times
from controller.core.model.inputs import NoteStart
from controller.core.model.job import Job
from controller.core.model.start_estimates import LATEST, LIKELY
from controller.core.state.state import State

MOST_JOBS = 20
"""The most jobs of one sample."""
MOST_LIVE = 2_000
"""With more live jobs no sample is taken, because copying them would delay submits."""
MOST_STEPS = 500


def jobs_to_sample(state: State) -> list[Job]:
    """The oldest waiting jobs without an estimate; none if there are too many jobs to copy."""
    live = list(state.live())
    if len(live) > MOST_LIVE:
        return []
    fresh = (job for job in live if job.ready and all(each.kind != LATEST for each in job.foreseen))
    return sorted(fresh, key=lambda job: job.id)[:MOST_JOBS]


def start_estimates(ahead: Engine, jobs: list[int], now: float) -> list[NoteStart]:
    """The latest starts of these jobs and, with predictions, the likely ones. The copy is used up."""
    likely = {}
    if ahead.state.estimates.runs:
        likely = forecast(with_run_times(fork(ahead), predicted=True), now, steps=MOST_STEPS).starts
    latest = forecast(with_run_times(ahead, predicted=False), now, steps=MOST_STEPS).starts
    return [
        NoteStart(job, kind, starts[job].at)
        for kind, starts in ((LATEST, latest), (LIKELY, likely))
        for job in jobs
        if job in starts and starts[job].at > now
    ]
