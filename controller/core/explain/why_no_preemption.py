"""Explains why no running job is preempted for a waiting job although preemption is configured."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from controller.core.backfill.cycle import Cycle
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.job import Job
from controller.core.preemption.preemptor import NO_GUARDS, Preemptor
from wire.text import counted, duration

_LIFTED = ("rate", "max_per_job", "cooldown_s", "min_runtime_s")
"""The guards of [preemption], in the order in which each one alone is removed to find the one that blocks."""


def why_no_preemption(cycle: Cycle, job: Job, now: float) -> str:
    """Return a sentence about what prevents preemption for a waiting job.

    Empty if preemption is not configured. A guard is a limit of [preemption] in scheduler.toml, such as the
    cooldown. The search for victims is the one that the scheduling pass uses.

    1. If no victims are found even without guards, no jobs may be preempted for it, or they free too little.
    2. If victims are found with all guards, the job is not the first one waiting: only that one may preempt.
    3. Otherwise, if victims are found without one of the guards, name this guard.
    4. Otherwise name the guards that must all be removed so that victims are found.
    """
    state, pipeline = cycle.state, cycle.placer.pipeline
    if not pipeline.strategies:
        return ""
    if state.licences.insufficient(job.ask.licences):
        return "it lacks licences, and no job is preempted for licences"
    if cycle.limits.over(job, now) is not None:
        return "it is over a quota or share, and no job is preempted for that"
    if all(strategy.reach(job) is None for strategy in pipeline.strategies):
        return "no preemption strategy allows this job to preempt others"
    if not _plans(cycle, job, now, NO_GUARDS):
        return "no set of running jobs that may be preempted for it frees enough resources"
    if _plans(cycle, job, now, pipeline.guards):
        return "jobs can be preempted for it once it is the first waiting job"
    for name in _LIFTED:
        lifted = replace(pipeline.guards, **{name: getattr(NO_GUARDS, name)})
        if _plans(cycle, job, now, lifted):
            return _guard_text(cycle, name, now)
    return "several of the limits in [preemption] are reached: " + ", ".join(
        _blocking_guards(cycle, job, now)
    )


def _blocking_guards(cycle: Cycle, job: Job, now: float) -> list[str]:
    """Return names of guards (limits of [preemption]) that must all be removed so that victims are found.

    Start without guards, and restore each guard with which victims are still found.
    """
    guards = cycle.placer.pipeline.guards
    lifted = replace(guards, **{name: getattr(NO_GUARDS, name) for name in _LIFTED})
    blocking = []
    for name in _LIFTED:
        restored = replace(lifted, **{name: getattr(guards, name)})
        if _plans(cycle, job, now, restored):
            lifted = restored
        else:
            blocking.append(name)
    return blocking


def _plans(cycle: Cycle, job: Job, now: float, guards: PreemptionGuards) -> bool:
    """Return whether victims are found if these guards (limits of [preemption]) apply to all profiles."""
    search = Preemptor(cycle.state, cycle.placer, cycle.placer.pipeline.strategies, guards)
    return search.plan(job, now, cycle.reserved_for_others(job, now)) is not None


def _guard_text(cycle: Cycle, name: str, now: float) -> str:
    guards, recent = cycle.placer.pipeline.guards, cycle.state.preempted_at
    if name == "rate":
        past = recent[bisect_right(recent, now, key=lambda at: at + guards.window_s) :]
        return (
            f"{counted(len(past), 'job')} {'was' if len(past) == 1 else 'were'} preempted in the last "
            f"{duration(guards.window_s)}, and [preemption] rate allows {guards.rate}"
        )
    if name == "max_per_job":
        times = counted(guards.max_per_job, "time")
        return f"jobs that could be preempted for it were preempted {times} already (max_per_job)"
    if name == "cooldown_s":
        ago = duration(guards.cooldown_s)
        return f"jobs that could be preempted for it were preempted less than {ago} ago (cooldown_s)"
    least = duration(guards.min_runtime_s)
    return f"jobs that could be preempted for it have run for less than {least} (min_runtime_s)"
