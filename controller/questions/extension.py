"""Answers whether a longer time limit of a running job would delay a promised start of another job."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.engine import Engine
from controller.core.forecast.forecast import Forecast, forecast, fork, with_run_times
from controller.core.model.inputs.job_inputs import Edit
from controller.core.model.job import NEVER, Job
from controller.core.model.start_estimates import PROMISE
from controller.questions.engine_copy.engine_copy import EngineCopy
from wire.names import JobState
from wire.text import duration, printable

ACTOR = "root"
TOLERANCE_S = 1.0
"""Seconds. A start that is later by less than this does not count as delayed."""


def extension_delay(engine_copy: EngineCopy, number: int, limit_s: float) -> Iterator[str]:
    """Yield one sentence with a job or reservation that a longer limit would delay. The running job `number`
    is assumed to have the time limit `limit_s`. Yield "" if the limit delays nothing, and yield nothing if
    the forecast was not ready in time.

    1. Look for a reservation of an operator, or a timed drain, that begins on a node of the job between the
       old and the new end of the job. A reservation that admits the job does not matter.
    2. Look for a job with a promised start (`promised_jobs`) that would start later with the longer limit.
       Two forecasts on copies of the engine give the starts with and without the longer limit. Both assume
       that every job uses its whole time limit.

    Example: job 3 (8 GPUs) waits for job 1 on the only node and is promised to start in 2 h. Another hour for
    job 1 yields "job 3 (train, bob), which is promised to start in 2h00m, would start 1h00m later".
    """
    engine, now = engine_copy.engine, engine_copy.now
    job = engine.state.jobs.get(number)
    if job is None or job.state is not JobState.RUNNING:
        yield ""
        return
    sentence = _begins_before_end(engine, job, limit_s, now)
    if sentence:
        yield sentence
        return
    engine.state.estimates = engine.state.estimates.read_only()
    promised = promised_jobs(engine, now)
    if not promised:
        yield ""
        return

    def starts(changes: list[Edit]) -> Forecast:
        ahead = with_run_times(fork(engine), predicted=False)
        return forecast(
            ahead,
            now,
            changes,
            going=lambda _moment, known: engine_copy.in_time and not all(each in known for each in promised),
        )

    before = starts([])
    after = starts([Edit(number, ACTOR, {"time_limit_s": limit_s})])
    if not engine_copy.in_time:
        return
    for each in promised:
        was, becomes = before.starts.get(each), after.starts.get(each)
        at = NEVER if becomes is None else becomes.at
        if was is not None and at > was.at + TOLERANCE_S:
            yield _delayed(engine.state.jobs[each], was.at, at, now)
            return
    yield ""


def promised_jobs(engine: Engine, now: float) -> list[int]:
    """Return the waiting jobs with a promised start: jobs with a backfill reservation or a nomination
    (resources kept while victims end), jobs to which an earlier cycle guaranteed a start, and jobs with a
    deadline.
    """
    found = {number for number in engine.state.claims if not engine.state.jobs[number].unended}
    for cycle in engine.profile_cycles.cycles.values():
        found.update(cycle.reservations.by_job)
        first = cycle.first_reservation(now)
        if first is not None:
            found.add(first.job)
    for lane in engine.state.queue:
        for _, number in lane:
            job = engine.state.jobs[number]
            if job.latest_start < NEVER or any(each.kind == PROMISE for each in job.foreseen):
                found.add(number)
    return sorted(found)


def _begins_before_end(engine: Engine, job: Job, limit_s: float, now: float) -> str:
    nodes = {member.allocation.node for member in job.running}
    end = job.latest_end
    for each in engine.state.reservations.excluding(job.user, job.spec.project):
        later = end - job.limit + limit_s
        if not nodes.isdisjoint(each.nodes) and each.clear_from(end, later - end) > end:
            start = each.starts_at if each.starts_at >= end else each.next_start(now) or each.starts_at
            return f"{each.title} begins in {duration(max(0.0, start - now))}"
    return ""


def _delayed(job: Job, was: float, becomes: float, now: float) -> str:
    name = f"job {job.label} ({printable(job.name, 40)}, {printable(job.user, 40)})"
    then = (
        "would start at an unknown time"
        if becomes == NEVER
        else f"would start {duration(becomes - was)} later"
    )
    return f"{name}, which is promised to start in {duration(max(0.0, was - now))}, {then}"
