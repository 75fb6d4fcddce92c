"""Answers `corral what-if`: compares a forecast with the proposed changes and a forecast without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controller.config import ConfigRefused
from controller.core.engine import Engine
from controller.core.forecast.forecast import Forecast, first_in_queue, forecast, fork, with_run_times
from controller.core.forecast.smallest_change import suggestions
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input, Requester
from controller.core.model.job import NEVER, Job
from controller.questions.changes import changes_of, other_config
from controller.questions.engine_copy.engine_copy import EngineCopy, FirstPart
from controller.questions.engine_copy.forked_processes import Fork
from controller.questions.explanation import easing_view, victim_view
from wire.api.forecasts import Easing, Shift, WhatIf, WhatIfAnswer
from wire.api.nodes import LeavingJob
from wire.api.reasons import Why
from wire.names import JobState

MAX_SHIFTS = 200
"""The greatest number of jobs that start later, and of jobs that start sooner, that the answer lists. All
other changed starts are only counted, and their seconds added up.
"""
SMALL_SHIFT_S = 60.0
SMALL_SHIFT_PART = 0.05
"""A changed start is small if the change is less than a minute, or less than this fraction of the wait."""
HOUR_S = 3600.0


def what_if(
    engine_copy: EngineCopy, question: WhatIf, user: str, only_first: bool, asker: Requester | None = None
) -> Iterator[WhatIfAnswer]:
    """Yield an answer with the waiting jobs that would start earlier or later with the proposed changes. If
    the changes include a configuration with mistakes, the answer has only these mistakes.

    1. In a forked copy of this process, forecast the cluster without the changes. In another copy, if the
       changes submit a job, find the reason why it would wait.
    2. In this process, pass the changes to the engine and make a second forecast.
    3. Stop both forecasts when the starts of all waiting jobs are known, or at the deadline. With
       `only_first`, stop when the next 24 hours are forecast and the starts of the first 200 jobs are known.
    4. Compare both forecasts up to the time that both have reached. A start after that time counts as
       unknown.
    """
    now = engine_copy.now
    engine = engine_copy.engine
    engine.state.estimates = engine.state.estimates.read_only()
    before_it = WaitingJobs.of(engine)
    try:
        other = None if question.config is None else other_config(question.config, engine_copy.config)
    except ConfigRefused as refused:
        problems = tuple(map(str, refused.problems))
        yield WhatIfAnswer(now, (), len(before_it.queued), problems, as_of=engine_copy.seq)
        return
    changes = changes_of(question, engine, user, asker)
    leaving = _leaving(engine, question)
    first = first_in_queue(engine, now, FirstPart.JOBS) if only_first else []

    def ahead(engine: Engine, changes: list[Input]) -> Forecast:
        part = FirstPart(now, first)
        return forecast(
            with_run_times(engine, predicted=False),
            now,
            changes,
            going=lambda moment, starts: (
                engine_copy.in_time and not (only_first and part.done(moment, starts))
            ),
        )

    plain = Fork(lambda: ahead(engine, []))
    if other is not None:
        engine = fork(engine, other.pipeline)
    reason = Fork(lambda: _why_not_at_once(engine_copy, engine, changes)) if question.submit else None
    after = ahead(engine, changes)
    before = plain.result(engine_copy.deadline.later(engine_copy.spare_s / 2))
    # The forecast without the changes did not finish one scheduling cycle in time, so there is nothing to
    # compare.
    if before is None:
        before = Forecast({}, (), False, known_until=now)
    answer = _compare(before_it, before, after, engine, now)
    answer = replace(answer, leaving=leaving)
    answer = replace(answer, as_of=engine_copy.seq, passed_over=other.passed_over if other else ())
    if reason is not None:
        why, eased = reason.result(engine_copy.deadline.later(engine_copy.spare_s / 2)) or (None, None)
        answer = replace(answer, why=why, easings=eased or (), complete=answer.complete and eased is not None)
    yield answer


def _leaving(engine: Engine, question: WhatIf) -> tuple[LeavingJob, ...]:
    """Return the running jobs that the proposed timed drains would move or end."""
    if question.drain_by is None:
        return ()
    return tuple(
        each.view
        for node in map(engine.state.nodes.get, question.drain)
        if node is not None
        for each in engine.timed_drains.to_stop(node, question.drain_by)
    )


def _why_not_at_once(
    engine_copy: EngineCopy, engine: Engine, changes: list[Input]
) -> tuple[Why | None, tuple[Easing, ...]]:
    """Return the reason why the first job that `changes` submit would wait, and further changes that would
    start this job now.

    If the job would start at once, return None and no further changes.
    """
    first, now = engine.state.next_job, engine_copy.now
    for each in changes:
        engine.handle(each, now)
    if first not in engine.state.jobs:  # The submit was refused.
        return None, ()
    eased = Fork(lambda: _easings(engine_copy, engine, first))
    engine.handle(Tick(), now)
    job = engine.state.jobs.get(first)
    if job is None or job.state is not JobState.QUEUED:
        eased.end()
        return None, ()
    return engine.explain(job, now), eased.result(engine_copy.deadline) or ()


def _easings(engine_copy: EngineCopy, engine: Engine, job: int) -> tuple[Easing, ...]:
    found = suggestions(engine, job, engine_copy.now, engine_copy.on_copy)
    label = engine.state.jobs[job].label
    return tuple(easing_view(engine, label, each, engine_copy.now) for each in found)


@dataclass(frozen=True, slots=True)
class NamedJob:
    """The internal id, display id (17 or 12_3), name and user of a job."""

    id: int
    label: str
    name: str
    user: str

    @classmethod
    def of(cls, job: Job) -> NamedJob:
        return cls(job.id, job.label, job.name, job.user)


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """The queued and held jobs before the proposed changes. Jobs with ids from `next_job` on are new."""

    queued: list[NamedJob]
    held: list[NamedJob]
    next_job: int

    @classmethod
    def of(cls, engine: Engine) -> WaitingJobs:
        live = list(engine.state.live())
        queued = [NamedJob.of(job) for job in live if job.state is JobState.QUEUED and not job.held]
        return cls(queued, [NamedJob.of(job) for job in live if job.held], engine.state.next_job)


@dataclass(slots=True)
class ShiftTotals:
    """Counts and lists the jobs that start later or sooner with the proposed changes, and adds up the seconds
    by which their starts differ.
    """

    now: float
    until: float
    """The time that both forecasts have reached; NEVER if both are complete. Later starts count as unknown.
    """
    later: list[tuple[float, Shift]] = field(default_factory=list)
    sooner: list[tuple[float, Shift]] = field(default_factory=list)
    unchanged: int = 0
    trifles: int = 0
    unknown: int = 0
    """The number of jobs without a start before `until` in both forecasts, while a forecast is incomplete.
    Jobs are also counted here if they start shortly before `until` in only one forecast.
    """
    not_known: int = 0
    """The number of jobs for which neither forecast has a start, although both forecasts are complete."""
    now_unknown: int = 0
    """The number of jobs that have a start only without the changes, although both forecasts are complete.
    These jobs also count as starting later.
    """
    now_known: int = 0
    """The number of jobs that have a start only with the changes, although both forecasts are complete. These
    jobs also count as starting sooner.
    """
    later_s: float = 0.0
    sooner_s: float = 0.0

    def add(self, job: NamedJob, before: Forecast, after: Forecast) -> None:
        """Compare the starts of one job in the forecasts `before` and `after` the changes.

        1. If neither forecast has a start of the job: count the job in `unknown` if a forecast is incomplete,
           and in `not_known` if both are complete, for example because the job waits for a job without a time
           limit.
        2. If only one forecast has a start: assume that the job starts at `until` in the other forecast.
        3. Count the job as unchanged, later or sooner, by the difference between the two starts. If the
           difference is small (SMALL_SHIFT_S, SMALL_SHIFT_PART), count the job only in `trifles`, or in
           `unknown` if only one forecast has a start.
        """
        was, becomes = (
            start if start and start.at <= self.until else None
            for start in (before.starts.get(job.id), after.starts.get(job.id))
        )
        if was is None and becomes is None:
            if self.until < NEVER:
                self.unknown += 1
            else:
                self.not_known += 1
            return
        if self.until == NEVER:
            self.now_unknown += becomes is None
            self.now_known += was is None
        at = was.at if was else self.until
        then = becomes.at if becomes else self.until
        delay = then - at
        if was and becomes:
            self.later_s += max(0.0, delay)
            self.sooner_s += max(0.0, -delay)
        if abs(delay) < 1.0:
            self.unchanged += 1
            return
        if abs(delay) < max(SMALL_SHIFT_S, SMALL_SHIFT_PART * (min(at, then) - self.now)):
            if was and becomes:
                self.trifles += 1
            else:
                self.unknown += 1
            return
        shift = Shift(
            job.id,
            job.label,
            job.name,
            job.user,
            was.at if was else None,
            becomes.at if becomes else None,
            becomes.nodes if becomes else (),
        )
        (self.later if delay > 0 else self.sooner).append((delay, shift))


def _compare(
    there: WaitingJobs, before: Forecast, after: Forecast, changed: Engine, now: float
) -> WhatIfAnswer:
    """Return the answer: the jobs that the changes submit, then the most delayed jobs, and then the jobs that
    gain the most time.
    """
    until = min(before.known_until, after.known_until)
    tally = ShiftTotals(now, until)
    released = [job for job in there.held if job.id in after.starts]
    for job in (*there.queued, *released):
        if not _is_cancelled(changed, job.id):
            tally.add(job, before, after)
    new = []
    for each in changed.state.jobs.values():
        if each.id >= there.next_job:
            start = after.starts.get(each.id)
            at, nodes = (start.at, start.nodes) if start else (None, ())
            new.append(Shift(each.id, each.label, each.name, each.user, None, at, nodes, new=True))
    later = sorted(tally.later, key=lambda each: (-each[0], each[1].job))
    sooner = sorted(tally.sooner, key=lambda each: (each[0], each[1].job))
    known = {(plan.job, victim.job) for plan in before.plans for victim in plan.victims}
    return WhatIfAnswer(
        now,
        (
            *sorted(new, key=lambda shift: shift.job)[:MAX_SHIFTS],
            *(shift for _, shift in later[:MAX_SHIFTS]),
            *(shift for _, shift in sooner[:MAX_SHIFTS]),
        ),
        tally.unchanged,
        tuple(each.reply.message for each in after.decisions if not isinstance(each.reply, Accepted)),
        (before.whole or before.known_until < NEVER) and (after.whole or after.known_until < NEVER),
        tuple(
            victim_view(changed, plan, victim, changed.state.jobs[plan.job].label)
            for plan in after.plans
            if plan.at <= until
            for victim in plan.victims
            if (plan.job, victim.job) not in known
        ),
        later=len(later),
        sooner=len(sooner),
        trifles=tally.trifles,
        unknown=tally.unknown,
        later_h=tally.later_s / HOUR_S,
        sooner_h=tally.sooner_s / HOUR_S,
        complete=until == NEVER,
        covers_until=until if until < NEVER else None,
        not_known=tally.not_known,
        now_unknown=tally.now_unknown,
        now_known=tally.now_known,
    )


def _is_cancelled(changed: Engine, job: int) -> bool:
    there = changed.state.jobs.get(job)
    return there is not None and there.state is JobState.CANCELLED
