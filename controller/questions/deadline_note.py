"""Checks by a forecast, after a job with a deadline was submitted, whether the job will meet the deadline. If
it will not, finds a change that would help.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from controller.core.engine import Engine
from controller.core.explain.blockers import deadline_texts, limit_blocker
from controller.core.forecast.forecast import forecast, with_run_times
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Edit, Preempt
from controller.core.model.inputs.policy_inputs import SetQuota
from controller.core.model.job import NEVER, Job
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.usage_counters import GPU, RUNNING
from controller.questions.engine_copy.engine_copy import EngineCopy
from wire.cluster.quota import Limits, Quota
from wire.names import WHOLE_GPU, JobState
from wire.text import duration, printable

ACTOR = "root"
MOST_QUEUES = 4
"""The greatest number of other queues in which the start of the job is forecast."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that may let a job meet its deadline. The sentence for users is "The job would meet its
    deadline if", followed by `text`.
    """

    text: str
    inputs: tuple[Input, ...]


def deadline_note(engine_copy: EngineCopy, number: int) -> Iterator[str]:
    """Yield a sentence about a job that was just submitted: whether the job will meet its deadline. If the
    job will miss its deadline, also yield the same sentence with an addition: a change that would help, or
    that no change would help. Yield nothing if the job has no deadline.

    1. Forecast the start of the job, assuming that all jobs use their full time limits. If this start is not
       later than the latest start that meets the deadline (`Job.latest_start`), the job will meet its
       deadline.
    2. If the start is later, try these changes, each on a copy of the engine: a higher quota, other queues
       that the user may use, and the preemption of running jobs. Stop at the first change with which the job
       meets its deadline.
    """
    engine, now = engine_copy.engine, engine_copy.now
    job = engine.state.jobs.get(number)
    if job is None or job.latest_start == NEVER:
        return
    if job.state is not JobState.QUEUED:
        yield f"job {job.label} starts at once, and meets its deadline if it ends within its time limit"
        return
    if job.held:
        left = duration(max(0.0, job.latest_start - now))
        yield f"job {job.label} is held; it has to start within {left} to meet its deadline"
        return
    engine.state.estimates = engine.state.estimates.read_only()
    placer = engine.profile_cycles.of(job).placer
    texts = deadline_texts(engine.state, placer, job, now)
    blocked = limit_blocker(engine.profile_cycles.of(job), job, now)
    if blocked is not None:
        texts.append(blocked[1])
    changes = [*_remedies(engine, job, now)]
    start = engine_copy.on_copy(engine, partial(_start, engine_copy, number, ()))
    if start is None:
        return
    if start <= job.latest_start:
        yield (
            f"the plan meets the deadline: job {job.label} starts in {duration(start - now)} at the latest, "
            f"and has to start within {duration(job.latest_start - now)}"
        )
        return
    text = f"the plan misses the deadline: job {job.label} {'; '.join(texts)}"
    yield text
    for change in changes:
        tried = engine_copy.on_copy(engine, partial(_start, engine_copy, number, change.inputs))
        if tried is None:  # The time for the answer is over.
            return
        if tried <= job.latest_start:
            yield f"{text}. The job would meet its deadline if {change.text}"
            return
    yield f"{text}. Neither a higher quota nor another queue nor preemption would help"


def _start(engine_copy: EngineCopy, number: int, first: tuple[Input, ...], copy: Engine) -> float | None:
    """Let the engine `copy` handle the inputs `first`, and then forecast the start of the job. Return the
    latest start in seconds since 1970.

    Return NEVER if the complete forecast contains no start of the job. Return None if the forecast was not
    ready in time.
    """
    ahead = with_run_times(copy, predicted=False)
    found = forecast(
        ahead, engine_copy.now, first, number, going=lambda _moment, _starts: engine_copy.in_time
    )
    start = found.starts.get(number)
    if start is None:
        return NEVER if found.known_until == NEVER else None
    return start.at


def _remedies(engine: Engine, job: Job, now: float) -> Iterator[Remedy]:
    """Yield the changes that may let the job meet its deadline, in the order in which deadline_note() tries
    them.
    """
    cycle = engine.profile_cycles.of(job)
    over = cycle.limits.over(job, now)
    if isinstance(over, LimitExceeded) and over.kind in (GPU, RUNNING):
        yield _higher_quota(over)
    queues = engine.state.quotas.rules.queues
    others = [
        name
        for name, rule in sorted(queues.items(), key=lambda each: (-each[1].priority, each[0]))
        if name != job.spec.queue
        and (not rule.users or job.user in rule.users)
        and (not rule.projects or job.spec.project in rule.projects)
    ]
    for name in others[:MOST_QUEUES]:
        command = f"corral job set {job.label} --queue {printable(name)}"
        yield Remedy(f"it was in queue {printable(name)}: {command}", (Edit(job.id, ACTOR, {"queue": name}),))
    plan, _ = engine.preemption_plan(job, now)
    if plan is not None and plan.victims:
        victims = [engine.state.jobs[each.job] for each in plan.victims]
        labels = " ".join(each.label for each in victims)
        word = "job" if len(victims) == 1 else "jobs"
        yield Remedy(
            f"an operator preempted {word} {labels}: corral job preempt {labels}",
            tuple(Preempt(each.id, ACTOR, True) for each in victims),
        )


def _higher_quota(over: LimitExceeded) -> Remedy:
    """Return the remedy that raises the exceeded quota just enough for the job to start now."""
    scope, name = over.key
    need = over.used + over.asked
    if over.kind == GPU:
        amount = -(-need // WHOLE_GPU)
        limits, option = Limits(gpus=float(amount)), f"gpus={amount}"
        what = f"{amount} GPUs"
    else:
        limits, option, what = Limits(running=need), f"running={need}", f"{need} running jobs"
    command = f"corral quota set {scope} {printable(name)} {option}"
    return Remedy(
        f"an operator raised the quota of {scope} {printable(name)} to {what}: {command}",
        (SetQuota(scope, name, Quota(limits), ACTOR),),
    )
