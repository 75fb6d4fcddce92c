"""Answers `corral explain`: when a waiting job starts, and which change would start the job now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from controller.core.engine import Engine
from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.forecast.forecast import Forecast, forecast, with_run_times
from controller.core.forecast.smallest_change import Suggestion, suggestion_command, suggestions
from controller.core.forecast.start_outlook import (
    assumed_preemptions,
    held_outlook,
    last_blocker,
    why_no_start,
)
from controller.core.model.events.nominations import PreemptionPlanned, Victim
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Release
from controller.core.model.job import NEVER
from controller.core.model.start_estimates import LATEST, LIKELY
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.engine_copy.forked_processes import Fork
from wire.api.forecasts import Easing, Explanation
from wire.api.jobs import JobView
from wire.api.reasons import NodeScore, Ousted, Why
from wire.names import JobState, Reason


def explain_waiting(engine_copy: EngineCopy, view: JobView) -> Iterator[Explanation]:
    """Yield answers about a waiting job: why it waits, and when it starts. Each answer contains more than the
    previous answer.

    1. In forked copies of this process, find the changes that would start the job now, and, unless the job is
       held, its likely start, assuming that jobs run as long as predicted.
    2. In this process, find why no job is preempted for the waiting job. Yield an answer with this reason.
    3. Find the latest start of the job, assuming that jobs use their full time limits and grace times. A held
       job is treated as released now. If the forecast finds no start, find the reason. Yield an answer with
       the result.
    4. If a quota, a fair-share limit, the queue's start hours or GPUs that a queue keeps free let the job
       wait, find in another forked copy why the job still waits just before its latest start.
    5. Yield a last answer with everything that was found in time.
    """
    engine, now, number = engine_copy.engine, engine_copy.now, view.id
    engine.state.estimates = engine.state.estimates.read_only()
    job = engine.state.jobs.get(number)
    if job is None:  # The job has ended since the question was asked.
        return
    why, predicted_s = engine.explain(job, now), engine.predicted(job)
    answer = Explanation(view, why, predicted_s=predicted_s, as_of=engine_copy.seq, complete=False)
    if job.state is not JobState.QUEUED:  # The job started after the question was asked.
        yield replace(answer, complete=True)
        return
    eased = Fork(lambda: _easings(engine_copy, number))
    held = job.held  # Read `held` now, because the forecast below releases the job.
    likely = None
    if not held and ends_expected(engine):
        likely = Fork(lambda: _start_of(engine_copy, number, predicted=True))
    if job.ready:
        answer = replace(answer, no_preemption=why_no_preemption(engine.profile_cycles.of(job), job, now))
    yield answer
    labels = {each.id: (each.label, each.name, each.user) for each in engine.state.live()}
    limited = answer.why.reason in (Reason.QUOTA, Reason.SHARE, Reason.HOURS, Reason.KEPT_FREE)
    last = Fork(lambda: _waits_last(engine_copy, number)) if limited else None
    scores = engine.state.estimates.starts
    latest = _start_of(engine_copy, number, predicted=False, first=(Release(number, "root"),) if held else ())
    answer = _with_start(engine_copy, answer, latest, number, labels, held=held)
    yield answer
    expected = None if likely is None else likely.result(engine_copy.deadline)
    probable = None if expected is None else expected.starts.get(number)
    between = None
    for kind, at in ((LATEST, answer.starts_at), (LIKELY, probable.at if probable else None)):
        score = scores.get(kind)
        if at is not None and score is not None:
            between = score.span(at, now) or between
    changes = eased.result(engine_copy.deadline)
    yield replace(
        answer,
        likely_at=probable.at if probable else None,
        between=between,
        easings=changes or (),
        last="" if last is None else last.result(engine_copy.deadline) or "",
        complete=changes is not None
        and answer.covers_until is None
        and (likely is None or expected is not None),
    )


def ends_expected(engine: Engine) -> bool:
    """Return whether some jobs are expected to end before their time limits: run times can be predicted, or
    the scheduler assumes a run time for a job without a time limit.
    """
    if engine.state.estimates.runs:
        return True
    planned = engine.pipeline.estimating.default_s < NEVER
    return planned and any(job.limit == NEVER for job in engine.state.live())


def explain_reason(engine_copy: EngineCopy, number: int) -> Iterator[Why]:
    """Yield, without a forecast, the reason why a job is in its state, with its position in the queue. Yield
    nothing if the job has ended.
    """
    job = engine_copy.engine.state.jobs.get(number)
    if job is not None:
        yield engine_copy.engine.explain(job, engine_copy.now)


def explain_placement(engine_copy: EngineCopy, number: int) -> Iterator[tuple[NodeScore, ...]]:
    """Yield the points of the nodes of a running job, and of the best other nodes, at its placement. Yield
    nothing if the job no longer runs.
    """
    job = engine_copy.engine.state.jobs.get(number)
    if job is not None and job.unended:
        yield engine_copy.engine.placement_receipt(job)


def _easings(engine_copy: EngineCopy, number: int) -> tuple[Easing, ...]:
    engine = engine_copy.engine
    label = engine.state.jobs[number].label
    found = suggestions(engine, number, engine_copy.now, engine_copy.on_copy)
    return tuple(easing_view(engine, label, each, engine_copy.now) for each in found)


def easing_view(engine: Engine, label: str, eased: Suggestion, now: float) -> Easing:
    """Return the API's view of a change that would start the job now, with the command that makes the
    change."""
    jobs = [engine.state.jobs[each] for each in eased.preempt]
    command = suggestion_command(eased, label, {job.id: job.label for job in jobs})
    victims = tuple(Ousted(job.id, job.label, job.name, job.user, job.unsaved(now)) for job in jobs)
    return Easing(eased.sentence, eased.changes, command, victims)


def _waits_last(engine_copy: EngineCopy, number: int) -> str:
    """Return the reason, such as a quota, why a job still waits just before the start that the forecast has
    found; "" if the reason is unknown.

    Two forecasts are needed: one finds the start of the job, and the other the reason just before this start.
    """
    found = engine_copy.on_copy(engine_copy.engine, lambda _: _start_of(engine_copy, number, predicted=False))
    start = None if found is None else found.starts.get(number)
    if start is None:
        return ""
    return last_blocker(engine_copy.engine, engine_copy.engine.state.jobs[number], start.at, engine_copy.now)


def _start_of(
    engine_copy: EngineCopy, job: int, *, predicted: bool, first: tuple[Input, ...] = ()
) -> Forecast:
    ahead = with_run_times(engine_copy.engine, predicted=predicted)
    return forecast(ahead, engine_copy.now, first, job, going=lambda _moment, _starts: engine_copy.in_time)


def _with_start(
    engine_copy: EngineCopy,
    answer: Explanation,
    found: Forecast,
    job: int,
    labels: Mapping[int, tuple[str, str, str]],
    *,
    held: bool,
) -> Explanation:
    start, engine, now = found.starts.get(job), engine_copy.engine, engine_copy.now
    if held:
        return replace(answer, unknown=held_outlook(start, engine, job, now))
    if start is None and found.known_until < NEVER:
        return replace(answer, covers_until=found.known_until)
    if start is None:
        return replace(answer, unknown=why_no_start(engine, job, now))
    plan = next((each for each in found.plans if each.job == job), None)
    victims = (
        ()
        if plan is None
        else tuple(Ousted(each.job, *labels[each.job], each.gpu_hours, at=plan.at) for each in plan.victims)
    )
    return replace(
        answer,
        starts_at=start.at,
        nodes=start.nodes,
        assumes=tuple(assumed_preemptions(engine, found, job)),
        victims=victims,
        makes_room=plan is not None,
        no_preemption="" if plan is not None and plan.at <= now else answer.no_preemption,
    )


def victim_view(engine: Engine, plan: PreemptionPlanned, victim: Victim, by: str = "") -> Ousted:
    """Return the API's view of a running job that would be preempted. `by` is the display id (17 or 12_3) of
    the preempting job.
    """
    job = engine.state.jobs[victim.job]
    return Ousted(job.id, job.label, job.name, job.user, victim.gpu_hours, by, plan.at if by else None)
