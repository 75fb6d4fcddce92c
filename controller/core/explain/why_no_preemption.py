"""Why preemption, though it is configured, ends no running job for a waiting one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from controller.core.backfill.cycle import Cycle
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.job import Job
from controller.core.preemption.preemptor import NO_GUARDS, Preemptor
from wire.text import counted, duration

_LIFTED = ("rate", "max_per_job", "cooldown_s", "min_runtime_s")
"""Rules of [preemption], in the order in which they are lifted one by one to find the one in the way."""


def why_no_preemption(cycle: Cycle, job: Job, now: float) -> str:
    """What keeps preemption from making room for a waiting job; empty if it is not configured.

    1. Without any guard no strategy finds victims: none has a lower standing, or all together do not free
       enough.
    2. With all guards there is a plan: only the first waiting job has others preempted.
    3. Otherwise the guard without which there is a plan is named. The search is the one that decides.
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
        return "no set of running jobs that may be preempted for it frees a place"
    if _plans(cycle, job, now, pipeline.guards):
        return "jobs can be preempted for it once it is the first that waits"
    for name in _LIFTED:
        lifted = replace(pipeline.guards, **{name: getattr(NO_GUARDS, name)})
        if _plans(cycle, job, now, lifted):
            return _guard_text(cycle, name, now)
    return "several of the limits in [preemption] are reached: " + ", ".join(_LIFTED)


def _plans(cycle: Cycle, job: Job, now: float, guards: PreemptionGuards) -> bool:
    """True if there is a plan under these guards, also for victims of other profiles."""
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
