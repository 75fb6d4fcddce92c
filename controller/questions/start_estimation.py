"""Estimates the starts of some waiting jobs. When a job starts, the engine compares the actual start with the
estimate."""

from __future__ import annotations

from collections.abc import Container, Iterator

from controller.core.engine import Engine
from controller.core.forecast.forecast import Forecast, forecast, with_run_times
from controller.core.model.inputs.controller_inputs import NoteStart
from controller.core.model.job import Job
from controller.core.model.start_estimates import LATEST, LIKELY
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.engine_copy.forked_processes import Fork

MOST_JOBS = 20
"""The greatest number of jobs whose starts are estimated at a time."""


def start_estimates(engine_copy: EngineCopy) -> Iterator[list[NoteStart]]:
    """Yield start estimates for the oldest waiting jobs without an estimate: the latest and the likely start
    of each job.

    1. In a forked copy of this process: forecast the likely starts, if run times can be predicted.
    2. In this process: forecast the latest starts. Each forecast ends when the starts of all these jobs are
       known, or at the deadline.
    """
    engine = engine_copy.engine
    engine.state.estimates = engine.state.estimates.read_only()
    jobs = [job.id for job in jobs_to_sample(engine)]
    if not jobs:
        return
    likely = Fork(lambda: _starts(engine_copy, jobs, predicted=True)) if engine.state.estimates.runs else None
    latest = _starts(engine_copy, jobs, predicted=False)
    found = [(LATEST, latest), (LIKELY, likely.result(engine_copy.deadline) if likely else None)]
    yield [
        NoteStart(job, kind, foreseen.starts[job].at)
        for kind, foreseen in found
        if foreseen is not None
        for job in jobs
        if job in foreseen.starts and foreseen.starts[job].at > engine_copy.now
    ]


def jobs_to_sample(engine: Engine) -> list[Job]:
    """Return up to MOST_JOBS waiting jobs without a start estimate. Jobs with lower ids are chosen first."""
    waiting = (job for job in engine.state.live() if job.ready)
    fresh = (job for job in waiting if all(each.kind != LATEST for each in job.foreseen))
    return sorted(fresh, key=lambda job: job.id)[:MOST_JOBS]


def _starts(engine_copy: EngineCopy, jobs: list[int], *, predicted: bool) -> Forecast:
    def going(_moment: float, starts: Container[int]) -> bool:
        return engine_copy.in_time and any(job not in starts for job in jobs)

    return forecast(with_run_times(engine_copy.engine, predicted=predicted), engine_copy.now, going=going)
