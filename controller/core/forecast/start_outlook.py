"""Makes sentences about the start that a forecast found for a waiting job. If the forecast found no start, a
sentence says why.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.engine import Engine
from controller.core.explain.why_pending import CONSIDERED_NEXT
from controller.core.forecast.forecast import Forecast, ForecastStart, forecast, with_run_times
from controller.core.lifecycle.waiting.gates import gates_text
from controller.core.model.job import NEVER, Job
from wire.names import JobState, Reason
from wire.text import duration

NAMED = 8
"""The most jobs that a sentence names."""
LAST_AFTER_S = 600.0
"""If the forecast start is less than this many seconds away, `last_blocker` returns no sentence."""


def held_outlook(start: ForecastStart | None, ahead: Engine, number: int, now: float) -> str:
    """Return a sentence about a held job: when job `number` would start if it were released now. `start` is
    None if the forecast found no start.
    """
    if start is None:
        return f"it is held; it could not start if released: {why_no_start(ahead, number, now)}"
    left = start.at - now
    when = "at once" if left < 1 else f"in {duration(left)} at the latest, on {', '.join(start.nodes)}"
    return f"it is held; if it were released now, it would start {when}"


def assumed_preemptions(ahead: Engine, found: Forecast, number: int) -> Iterator[str]:
    """Yield texts about the preemptions that happen before job `number` starts in the forecast `found`.
    Preemptions for job `number` itself are left out.
    """
    others = [plan for plan in found.plans if plan.job != number]
    for plan in others[:NAMED]:
        jobs = ahead.state.jobs
        victims = _named([jobs[victim.job] for victim in plan.victims if victim.job in jobs])
        label = jobs[plan.job].label if plan.job in jobs else str(plan.job)
        yield f"{victims} {'is' if len(plan.victims) == 1 else 'are'} preempted for job {label} before"
    if len(others) > NAMED:
        yield f"{len(others) - NAMED} more preemptions come before"


def last_blocker(ahead: Engine, job: Job, at: float, now: float) -> str:
    """Return a sentence that says why the job still waits just before its start at the time `at`.

    Return an empty text if the reason is the same as now, or if the job then only waits for the end of
    another job at the time `at`. `ahead`, a copy of the engine, cannot be used afterwards.
    """
    if at - now < LAST_AFTER_S:
        return ""
    first = ahead.explain(job, now)
    forecast(
        with_run_times(ahead, predicted=False), now, (), job.id, going=lambda moment, _starts: moment < at
    )
    there = ahead.state.jobs.get(job.id)
    if there is None or there.state is not JobState.QUEUED:
        return ""
    last = ahead.explain(there, at - 1.0)
    if last.sentence == CONSIDERED_NEXT:
        return ""
    same = last.reason is first.reason and last.reason not in (Reason.QUOTA, Reason.SHARE)
    return "" if same or last.sentence == first.sentence else last.sentence


def why_no_start(ahead: Engine, number: int, now: float) -> str:
    """Return why a forecast found no start for a job. `ahead` is the copy of the engine at the end of the
    forecast.
    """
    job = ahead.state.jobs.get(number)
    if job is None:
        return "it is cancelled before it can start"
    if job.state.terminal:
        when = f" in {duration(job.ended_at - now)}" if job.ended_at and job.ended_at - now >= 1 else ""
        return f"it ends{when} without having started: {job.detail or job.reason.value.replace('_', ' ')}"
    if job.wait.gates:
        return f"it is unknown when the job can start: {gates_text(ahead.state, job, now)}"
    at = max(now, ahead.state.reservations.next_at) if not ahead.state.releases else now
    why = ahead.explain(job, at)
    unlimited = _without_limit(ahead, job)
    if unlimited:
        has = "has no time limit" if len(unlimited) == 1 else "have no time limit"
        return f"{_named(unlimited)} {has}, and the ends of other jobs do not free enough: {why.sentence}"
    if ahead.state.releases:
        return "it does not start within the time that the forecast covers"
    return f"it cannot start even after all running jobs have ended: {why.sentence}"


def _without_limit(ahead: Engine, job: Job) -> list[Job]:
    """Return the jobs without a time limit that still run at the end of the forecast.

    If some of these jobs run on nodes that could hold the waiting job, return only those.
    """
    state = ahead.state
    cycle = ahead.profile_cycles.of(job)
    shape = cycle.placer.shape(job.ask)
    found = [job for _, number in state.releases if (job := state.jobs[number]).limit == NEVER]
    if shape is None:
        return []
    possible = cycle.placer.possible_nodes(shape.part)
    rows = state.nodes.by_name
    near = [
        each for each in found if any(possible[rows[member.allocation.node].row] for member in each.running)
    ]
    return near or found


def _named(jobs: list[Job]) -> str:
    names = ", ".join(job.label for job in jobs[:NAMED])
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"job{'s' * (len(jobs) > 1)} {names}{more}"
