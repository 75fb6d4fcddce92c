"""Why, when and what if: asked of a copy of the engine, beside the loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.api.questions import changes_of, other_config
from controller.api.views import job_view
from controller.config import ConfigRefused
from controller.core import inputs
from controller.core.easing import easings
from controller.core.engine import Engine
from controller.core.events import PreemptionPlanned, Victim
from controller.core.forecast import Forecast, expecting, forecast, fork
from controller.core.foresight import LATEST, LIKELY
from controller.core.inputs import Accepted, Input, Refusal, Tick
from controller.core.jobs import Job
from controller.core.plugin import Pipeline
from wire.api.forecasts import Easing, Explanation, Shift, WhatIf, WhatIfAnswer
from wire.api.reasons import Ousted, Why
from wire.words import JobState

MOST_LIVE = 10_000
"""Jobs that have not ended; with more, copying them would keep everybody else waiting."""
SAME_S = 1.0
"""Starts that differ by less are the same to people."""


async def explain(call: Call) -> Explanation:
    """Why a job is where it is, and when it starts at the latest."""
    job = await call.job()
    engine, now = call.daemon.engine, call.daemon.now()
    told = Explanation(job_view(engine, job), engine.explain(job, now), predicted_s=engine.predicted(job))
    if job.state is not JobState.QUEUED or job.held or _too_many(engine):
        return told
    told = await asyncio.to_thread(_foreseen, told, fork(engine), now)
    for kind, when in ((LATEST, told.starts_at), (LIKELY, told.likely_at)):
        if when is not None:
            call.daemon.tell(inputs.NoteStart(job.id, kind, when))
    return told


def _foreseen(told: Explanation, ahead: Engine, now: float) -> Explanation:
    """The same with when it starts, what would start it now, and who would have to end for that.

    Uses the copy up.
    """
    job = told.job.id
    plan, makes_room = _look(ahead, job, now)
    victims = () if plan is None else tuple(_ousted(ahead, plan, each) for each in plan.victims)
    changes = tuple(Easing(each.sentence, each.changes) for each in easings(ahead, job, now))
    likely = None
    if ahead.state.estimates.runs:
        likely = forecast(expecting(fork(ahead), predicted=True), now, (), job).starts.get(job)
    start = forecast(expecting(ahead, predicted=False), now, (), job).starts.get(job)
    between = None
    for kind, found in ((LATEST, start), (LIKELY, likely)):
        score = ahead.state.estimates.starts.get(kind)
        if found is not None and score is not None:
            between = score.span(found.at, now) or between
    return replace(
        told,
        between=between,
        starts_at=start.at if start else None,
        nodes=start.nodes if start else (),
        victims=victims,
        makes_room=makes_room,
        easings=changes,
        likely_at=likely.at if likely else None,
    )


def _look(ahead: Engine, job: int, now: float) -> tuple[PreemptionPlanned | None, bool]:
    """Who would have to end for the job to start now; nobody if it may not start or need not wait."""
    waiting = ahead.state.jobs[job]
    return ahead.look(waiting, now) if waiting.ready else (None, False)


def _ousted(engine: Engine, plan: PreemptionPlanned, victim: Victim, by: str = "") -> Ousted:
    job = engine.state.jobs[victim.job]
    return Ousted(job.id, job.label, job.name, job.user, victim.gpu_hours, by, plan.at if by else None)


async def what_if(call: Call) -> WhatIfAnswer:
    """What would start later or sooner if this were done. Nothing is done."""
    asked: WhatIf = call.body
    if asked.config is not None:
        call.need_operator("ask about another configuration")
    await call.daemon.settled()
    engine, now = call.daemon.engine, call.daemon.now()
    if _too_many(engine):
        refusal = Refusal("conflict", f"more than {MOST_LIVE} jobs are queued or running: too many to copy")
        raise Rejected(refusal)
    try:
        other = None if asked.config is None else other_config(asked.config, call.daemon.config)
    except ConfigRefused as refused:
        return WhatIfAnswer(now, (), len(_waiting(engine)), tuple(map(str, refused.problems)))
    changes = changes_of(asked, engine, call.caller.user)
    ahead, pipeline = fork(engine), other.pipeline if other else None
    before, after, changed = await asyncio.to_thread(_without_and_with, ahead, changes, pipeline, now)
    answer = _compare(engine, before, after, changed, now)
    if asked.submit:
        why, eased = await asyncio.to_thread(_why_not_at_once, ahead, changes, pipeline, now)
        answer = replace(answer, why=why, easings=eased)
    return replace(answer, passed_over=other.passed_over) if other else answer


def _without_and_with(
    ahead: Engine, changes: list[Input], pipeline: Pipeline | None, now: float
) -> tuple[Forecast, Forecast, Engine]:
    """What starts when as things are, and with the changes; and the copy on which they were made.

    Only the first copy is made while everybody waits: of the original.
    """
    plain = expecting(fork(ahead), predicted=False)
    changed = expecting(fork(ahead, pipeline), predicted=False)
    return forecast(plain, now), forecast(changed, now, changes), changed


def _why_not_at_once(
    ahead: Engine, changes: list[Input], pipeline: Pipeline | None, now: float
) -> tuple[Why | None, tuple[Easing, ...]]:
    """What the first new job would wait for after a cycle, and what would spare it that."""
    ahead = fork(ahead, pipeline)
    first = ahead.state.next_job
    for each in changes:
        ahead.handle(each, now)
    passed = fork(ahead)
    passed.handle(Tick(), now)
    job = passed.state.jobs.get(first)
    if job is None or job.state is not JobState.QUEUED:
        return None, ()
    eased = easings(ahead, first, now)
    return passed.explain(job, now), tuple(Easing(each.sentence, each.changes) for each in eased)


def _too_many(engine: Engine) -> bool:
    return sum(1 for _ in engine.state.live()) > MOST_LIVE


def _waiting(engine: Engine) -> list[Job]:
    return [job for job in engine.state.live() if job.state is JobState.QUEUED and not job.held]


def _compare(engine: Engine, before: Forecast, after: Forecast, changed: Engine, now: float) -> WhatIfAnswer:
    """The waiting jobs whose start differs, the most delayed first."""
    new = [job for job in changed.state.jobs.values() if job.id >= engine.state.next_job]
    released = [job for job in engine.state.live() if job.held and job.id in after.starts]
    waiting = [*_waiting(engine), *released]
    cancelled = {job.id for job in waiting if _is_cancelled(changed, job)}
    shifts = [
        shift
        for job in [*waiting, *new]
        if job.id not in cancelled and (shift := _shift(job, before, after, job.id >= engine.state.next_job))
    ]
    shifts.sort(key=lambda shift: (not shift.new, -_delay(shift), shift.job))
    refused = tuple(each.reply.message for each in after.decisions if not isinstance(each.reply, Accepted))
    known = {(plan.job, victim.job) for plan in before.plans for victim in plan.victims}
    ousted = tuple(
        _ousted(changed, plan, victim, changed.state.jobs[plan.job].label)
        for plan in after.plans
        for victim in plan.victims
        if (plan.job, victim.job) not in known
    )
    unchanged = len(waiting) - len(cancelled) - sum(not shift.new for shift in shifts)
    return WhatIfAnswer(now, tuple(shifts), unchanged, refused, before.whole and after.whole, ousted)


def _is_cancelled(changed: Engine, job: Job) -> bool:
    there = changed.state.jobs.get(job.id)
    return there is not None and there.state is JobState.CANCELLED


def _shift(job: Job, before: Forecast, after: Forecast, new: bool) -> Shift | None:
    was, becomes = before.starts.get(job.id), after.starts.get(job.id)
    same = was is not None and becomes is not None and abs(was.at - becomes.at) < SAME_S
    if not new and (same or was is becomes):
        return None
    return Shift(
        job.id,
        job.label,
        job.name,
        job.user,
        was.at if was else None,
        becomes.at if becomes else None,
        becomes.nodes if becomes else (),
        new,
    )


def _delay(shift: Shift) -> float:
    never = float("inf")
    if shift.was is None:
        return 0.0 if shift.becomes is None else -never
    return never if shift.becomes is None else shift.becomes - shift.was
