"""What starts when, if every job takes as long as it may: the same engine on a copy, ahead of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.core.engine import Engine
from controller.core.events import JobPlaced, JobShrunk, PreemptionPlanned, StopRequested
from controller.core.inputs import Decision, Input, MembersReported, Tick
from controller.core.jobs import NEVER, Job
from controller.core.notes import notes_of, recall
from controller.core.outcome import PREEMPTED, SHRUNK
from controller.core.plugin import Pipeline
from controller.core.records import bring_back
from controller.core.state import State
from controller.core.watch import Watch
from wire.frames import AttemptStatus
from wire.words import Reason

TURNS = 3
"""How often each reservation may come and go without anything starting before the rest is given up."""
MOST_STEPS = 5_000
"""Moments looked at; what has not started by then counts as not known."""


@dataclass(frozen=True, slots=True)
class Start:
    """When a waiting job starts at the latest, and where."""

    at: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The starts foreseen, by job, and what the inputs asked first were answered."""

    starts: dict[int, Start]
    decisions: tuple[Decision, ...]
    whole: bool
    """False if it was broken off before everything had started that ever can."""
    plans: tuple[PreemptionPlanned, ...] = ()
    """Who was ended for whom."""


def fork(engine: Engine, pipeline: Pipeline | None = None) -> Engine:
    """A copy that may be decided on without consequences, and decides as this one would.

    With another pipeline: as it would after a restart with that one. A plugin that fails on the copy is named
    by the original.
    """
    source, rules = engine.state, pipeline or replace(engine.pipeline, watch=Watch())
    state = State(rules.order, source.keep_ended, rules.sharing)
    state.estimates = source.estimates.still()
    recall(state, notes_of(source, learnt=False))
    state.nodes.mirror(source.nodes)
    bring_back(state, map(_twin, source.live()))
    state.nodes.demand.resume(source.nodes.demand)
    state.next_job = source.next_job
    state.preempted_at = list(source.preempted_at)
    ahead = Engine(rules, state)
    if pipeline is None:
        ahead.schedulers.resume(engine.schedulers)
    else:
        for node in state.nodes.rows:
            if node.boot_id:
                state.nodes.equip(node, node.facts, node.boot_id, pipeline.overcommit)
    return ahead


def _twin(job: Job) -> Job:
    """The same job, which may go another way from here on."""
    return replace(job, members={node: replace(member) for node, member in job.members.items()})


def expecting(ahead: Engine, *, predicted: bool) -> Engine:
    """A fork in which jobs run as long as they are predicted to, or else as long as they may."""
    rules, state = ahead.pipeline.estimating, ahead.state
    if predicted == rules.predicted:
        return ahead
    for job in [state.jobs[each] for _, each in state.releases]:
        if job.unended:
            state.unexpect(job)
            job.planned_s = job.predicted_s if predicted else None
            state.expect(job)
    return Engine(replace(ahead.pipeline, estimating=replace(rules, predicted=predicted)), state)


def forecast(
    ahead: Engine, now: float, first: Iterable[Input] = (), until: int | None = None, steps: int = MOST_STEPS
) -> Forecast:
    """Hand a fork these inputs, then let time pass: every job ends when its limit is up.

    Uses the fork up. With `until`, only as far as the start of that job.
    """
    decisions = tuple(ahead.handle(given, now) for given in first)
    for job in [job for job in ahead.state.live() if job.stopping is not None and job.stop_by is None]:
        _end(ahead, job, now)
    for job in [ahead.state.jobs[each] for each in ahead.state.elastic]:
        _leave(ahead, job, now)
    starts: dict[int, Start] = {}
    plans: list[PreemptionPlanned] = []
    moment, vain = now, 0
    for _ in range(steps):
        for event in ahead.handle(Tick(), moment).events:
            if isinstance(event, JobPlaced):
                vain = 0
                nodes = tuple(each.node for each in event.allocations)
                starts.setdefault(event.job, Start(moment, nodes))
            elif isinstance(event, JobShrunk):
                _leave(ahead, ahead.state.jobs[event.job], moment)
            elif isinstance(event, PreemptionPlanned):
                plans.append(event)
            elif isinstance(event, StopRequested) and event.until is None:
                _end(ahead, ahead.state.jobs[event.job], moment)
        waiting = len(ahead.state.queue) or ahead.keeper.kept or ahead.state.claims
        if until in starts or not waiting:
            return Forecast(starts, decisions, True, tuple(plans))
        following = min(ahead.state.releases[0][0] if ahead.state.releases else NEVER, ahead.next_at)
        ends = ahead.state.releases and ahead.state.releases[0][0] < NEVER
        due = min(ahead.keeper.next_at, ahead.schedulers.rests_until)
        vain += not (ends or due < NEVER)  # only reservations come and go, for ever
        if following == NEVER or vain > 2 * TURNS * len(ahead.state.reservations.by_name):
            return Forecast(starts, decisions, not ahead.state.releases, tuple(plans))
        moment = max(moment, following)
        _end_due(ahead, moment)
    return Forecast(starts, decisions, False, tuple(plans))


def _leave(engine: Engine, job: Job, moment: float) -> None:
    """What an elastic job is to give up has ended."""
    leaving = [member.allocation.node for member in job.running if member.leaving]
    over = AttemptStatus(job.id, job.attempt, 0, moment, moment, signal=15, why=SHRUNK)
    engine.handle(MembersReported(job.id, job.attempt, dict.fromkeys(leaving, over)), moment)


def _end_due(engine: Engine, moment: float) -> None:
    """Everything whose limit is up has ended."""
    state = engine.state
    for job in [job for end, job in state.releases if end <= moment]:
        _end(engine, state.jobs[job], moment)


def _end(engine: Engine, job: Job, moment: float) -> None:
    """All processes of a job have returned."""
    why = PREEMPTED if job.stopping is Reason.PREEMPTED and job.stop_by == job.expected_end else ""
    code = 9 if job.stopping is Reason.EVICTED else 0
    over = AttemptStatus(job.id, job.attempt, 0, moment, moment, code=code, why=why)
    nodes = [member.allocation.node for member in job.running]
    engine.handle(MembersReported(job.id, job.attempt, dict.fromkeys(nodes, over)), moment)
