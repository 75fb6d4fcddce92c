"""Forecasts when waiting jobs start. Simulates the future on a copy of the engine. Jobs are assumed to run
until their time limits or predicted ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from controller.core.engine import Engine
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.model.decision.decision import Decision
from controller.core.model.events.attempts import JobPlaced, JobShrunk, StopRequested
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.exit_outcome import PREEMPTED, SHRUNK
from controller.core.model.inputs.agent_inputs import MembersReported
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER, Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.pipeline.reconfigure import state_under
from controller.core.state.order_view import position_key
from wire.agent.reports import AttemptStatus
from wire.names import Reason

HORIZON_S = 10 * 365 * 86_400.0
"""A forecast looks at most this many seconds ahead. Jobs without a time limit may run even longer."""
MAX_IDLE_TURNS = 3
"""The forecast ends when each operator's reservation has begun and ended this many times, on average, without
a start of a job.
"""
MAX_STEPS = 100_000
"""A forecast has at most this many steps, so that it always ends."""
KeepGoing = Callable[[float, Collection[int]], bool]
"""A function that a forecast calls before each step except the first. Its arguments are the time of the step
and the ids of the jobs that have started before. If the function returns False, the forecast ends.
"""


T = TypeVar("T")


class OnCopy(Protocol):
    """A function that calls the function `work` with a copy of an engine."""

    def __call__(self, engine: Engine, work: Callable[[Engine], T]) -> T | None:
        """Return the result of `work`; None if `work` was not finished, for example for lack of time."""
        ...


@dataclass(frozen=True, slots=True)
class ForecastStart:
    """The latest time at which a waiting job starts (`at`), and the nodes on which it starts."""

    at: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of `forecast`: the starts of jobs, by job id. `decisions` contains the engine's decisions
    on the inputs `first`, which it handled before the simulation.
    """

    starts: dict[int, ForecastStart]
    decisions: tuple[Decision, ...]
    whole: bool
    """True if the forecast is complete: job `until` has started, or every waiting job that can ever start has
    started.
    """
    plans: tuple[PreemptionPlanned, ...] = ()
    """The preemptions that the forecast assumes."""
    known_until: float = NEVER
    """All starts before this time are in `starts`. NEVER unless `going`, `steps` or `last` stopped the
    forecast.
    """
    ends: dict[int, float] = field(default_factory=dict)
    """For each job that ended in the forecast, by job id, the time of its first end: at its expected end, by
    a preemption, or because of a drain.
    """


def fork(engine: Engine, pipeline: Pipeline | None = None) -> Engine:
    """Return a copy of the engine. The copy makes the same decisions and does not change the original.

    With `pipeline`, the copy decides as after a restart with that configuration. If a plugin fails in the
    copy, the failure does not count for the original.
    """
    source, rules = engine.state, pipeline or replace(engine.pipeline, breaker=CircuitBreaker())
    state = state_under(source, rules, source.live(), source.estimates.read_only())
    ahead = Engine(rules, state)
    if pipeline is None:
        ahead.profile_cycles.resume(engine.profile_cycles)
    else:
        for node in state.nodes.rows:
            if node.boot_id:
                state.nodes.set_facts(node, node.facts, node.boot_id, pipeline.overcommit)
    return ahead


def on_fork(engine: Engine, work: Callable[[Engine], T]) -> T | None:
    """Call `work` with a copy of the engine (`fork`), and return its result."""
    return work(fork(engine))


def with_run_times(ahead: Engine, *, predicted: bool) -> Engine:
    """Change the expected ends of jobs in `ahead`, a copy of the engine, and return `ahead`.

    With `predicted`, jobs end after their predicted run times. A job without a time limit ends after the run
    time that the scheduler assumes for it. Without `predicted`, jobs end at their time limits, and a job
    without a time limit never ends.
    """
    rules, state = ahead.pipeline.estimating, ahead.state
    if predicted == rules.predicted:
        return ahead
    for job in [state.jobs[each] for _, each in state.releases]:
        if job.unended and (job.limit < NEVER or rules.default_s == NEVER):
            state.remove_release(job)
            job.planned_s = job.predicted_s if predicted else None
            state.add_release(job)
    return Engine(replace(ahead.pipeline, estimating=replace(rules, predicted=predicted)), state)


def forecast(
    ahead: Engine,
    now: float,
    first: Iterable[Input] = (),
    until: int | None = None,
    going: KeepGoing | None = None,
    steps: int = MAX_STEPS,
    last: float = NEVER,
) -> Forecast:
    """Let `ahead`, a copy of the engine, handle the inputs in `first`. Then simulate the future on this copy.

    With `last`, the forecast also ends before the first step after the time `last`; `ahead` then has the
    state of this time. In all other cases, `ahead` cannot be used afterwards.

    1. Run a scheduling cycle at the simulated time, and record the starts. Jobs that the cycle stops end at
       once if the latest time of their end is not known.
    2. End the forecast in four cases: job `until` has started, no job waits, the next step is later than
       HORIZON_S, or only recurring reservations and quotas by hour would cause further steps.
    3. Go to the next end of a job, timer or reservation, and end the jobs whose limit is reached.
    4. Repeat until `going` returns False, or for `steps` steps. The starts that were found until then stay
       valid.

    Cost: one scheduling cycle for each step.

    Example: job 3 runs until 10:00 on the only node. Jobs 4 and 5 have limits of one hour and wait for the
    node. The steps are at the present time, at 10:00 (job 4 starts) and at 11:00 (job 5 starts).
    """
    ahead.give_no_limit_warnings()
    decisions = tuple(ahead.handle(given, now) for given in first)
    ends: dict[int, float] = {}
    for job in [job for job in ahead.state.live() if job.stopping is not None and job.stop_by is None]:
        _end(ahead, job, now, ends)
    for job in [ahead.state.jobs[each] for each in ahead.state.elastic]:
        _leave(ahead, job, now)
    starts: dict[int, ForecastStart] = {}
    plans: list[PreemptionPlanned] = []
    moment, idle_turns = now, 0
    for _ in range(steps):
        if moment > now and going is not None and not going(moment, starts):
            break
        for event in ahead.handle(Tick(), moment).events:
            if isinstance(event, JobPlaced):
                idle_turns = 0
                nodes = tuple(each.node for each in event.allocations)
                starts.setdefault(event.job, ForecastStart(moment, nodes))
            elif isinstance(event, JobShrunk):
                _leave(ahead, ahead.state.jobs[event.job], moment)
            elif isinstance(event, PreemptionPlanned):
                plans.append(event)
            elif isinstance(event, StopRequested) and event.until is None:
                _end(ahead, ahead.state.jobs[event.job], moment, ends)
        waiting = len(ahead.state.queue) or ahead.due_jobs.gated or ahead.state.claims
        if until in starts or not waiting:
            return Forecast(starts, decisions, True, tuple(plans), ends=ends)
        next_end = ahead.state.releases[0][0] if ahead.state.releases else NEVER
        following = min(next_end, ahead.next_at)
        any_ends = following == next_end < NEVER or any(_ends(ahead, job) for _, job in ahead.state.releases)
        due = min(ahead.due_jobs.next_at, ahead.profile_cycles.limits_change_at, ahead.timed_drains.next_at)
        # Count the steps in which only operators' reservations begin or end, or quotas change with the hour.
        # Recurring reservations and quotas by hour cause these steps without end, so the forecast ends after
        # a number of these steps.
        idle_turns += not (any_ends or due < NEVER)
        endless = 2 * MAX_IDLE_TURNS * len(ahead.state.reservations.by_name)
        endless += ahead.state.quotas.rules.timetable.changes_per_week
        if following > now + HORIZON_S or idle_turns > endless:
            return Forecast(starts, decisions, not ahead.state.releases, tuple(plans), ends=ends)
        if following > last:
            return Forecast(starts, decisions, False, tuple(plans), last, ends)
        moment = max(moment, following)
        _end_due(ahead, moment, ends)
    return Forecast(starts, decisions, False, tuple(plans), moment, ends)


def first_in_queue(engine: Engine, now: float, count: int) -> list[int]:
    """Return the first waiting jobs in queue order, at most `count` of each scheduler profile."""
    found: list[int] = []
    for cycle in engine.profile_cycles.cycles.values():
        entries = (entry for lane in cycle.queue for entry in lane)
        place = position_key(engine.state, cycle.queue, now)
        found += [job for _, job in heapq.nsmallest(count, entries, key=place)]
    return found


def _leave(engine: Engine, job: Job, moment: float) -> None:
    """Report to the engine the end of an elastic job on the nodes that the job gives up."""
    leaving = [member.allocation.node for member in job.running if member.leaving]
    over = AttemptStatus(job.id, job.attempt, 0, moment, moment, signal=15, why=SHRUNK)
    engine.handle(MembersReported(job.id, job.attempt, dict.fromkeys(leaving, over)), moment)


def _end_due(engine: Engine, moment: float, ends: dict[int, float]) -> None:
    """Report to the engine the ends of all jobs whose expected end has come.

    Without predictions, a job without a time limit never ends here, although the scheduler assumes an end for
    it.
    """
    for job in [job for end, job in engine.state.releases if end <= moment]:
        if _ends(engine, job, moment):
            _end(engine, engine.state.jobs[job], moment, ends)


def _ends(engine: Engine, number: int, by: float = NEVER) -> bool:
    """Return whether the running job `number` ends at its expected end in a forecast. A job without a time
    limit does so only if the forecast uses predictions, or if the job is being stopped and ends by the time
    `by`.
    """
    job = engine.state.jobs[number]
    limited = job.limit < NEVER or (job.stop_by is not None and job.stop_by <= by)
    return job.expected_end < NEVER and (limited or engine.pipeline.estimating.predicted)


def _end(engine: Engine, job: Job, moment: float, ends: dict[int, float]) -> None:
    """Report to the engine that a job has ended on all its nodes. If this is the job's first end in the
    forecast, record it in `ends`.
    """
    ends.setdefault(job.id, moment)
    why = PREEMPTED if job.stopping is Reason.PREEMPTED and job.stop_by == job.expected_end else ""
    code = 9 if job.stopping in (Reason.EVICTED, Reason.DRAINED) else 0
    over = AttemptStatus(job.id, job.attempt, 0, moment, moment, code=code, why=why)
    nodes = [member.allocation.node for member in job.running]
    engine.handle(MembersReported(job.id, job.attempt, dict.fromkeys(nodes, over)), moment)
