"""Explains why no running job is preempted for a waiting job although preemption is configured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np

from controller.core.backfill.cycle import Cycle
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.job import Job
from controller.core.placement.placer import Shape
from controller.core.preemption.guards import is_preemptible, likely_ends, preemptible_from
from controller.core.preemption.preemptor import NO_GUARDS, Preemptor
from wire.names import Reason
from wire.text import counted, duration, printable

_LIFTED = ("rate", "max_per_job", "cooldown_s", "min_runtime_s", "spare_ending_s")
"""The guards (limits of [preemption]) in the order in which they are removed, one at a time, to find the
guard that prevents the preemption.
"""


_LIMITS = {
    Reason.HOURS: "it is outside the hours of its queue",
    Reason.KEPT_FREE: "the free GPUs are kept for another queue",
    Reason.RESOURCES: "the next GPUs that become free are kept for another queue",
}
"""Phrases for limits that keep a job from starting, by pending reason. Quotas, fair-share limits and budgets
have one common phrase.
"""


def why_no_preemption(cycle: Cycle, job: Job, now: float) -> str:
    """Return a sentence that says what prevents preemption for a waiting job. Return an empty text if
    preemption is not configured.

    A guard is a limit of [preemption] in scheduler.toml, such as the cooldown. The function searches for
    victims (running jobs to preempt) in the same way as the scheduling cycle.

    1. If preemption is never tried for the job, name the cause. Possible causes: the job lacks licences, a
       limit of its quota, fair share or queue keeps it from starting, it fits without preemption, or it may
       preempt no job.
    2. Name the running jobs that are likely to end soon, if the waiting job can start after their end.
    3. If no victims are found even without guards, say how many running jobs the job may preempt, and why it
       may not preempt the others.
    4. If victims are found with all guards, say that only the first waiting job may preempt other jobs, and
       that this job is not the first one.
    5. Otherwise, if victims are found without one of the guards, name this guard.
    6. Otherwise name all guards that must be removed before victims are found.
    """
    preemptor = cycle.preemption.without_guards(())
    strategies = cycle.placer.pipeline.strategies
    if not strategies:
        return ""
    if cycle.state.licences.insufficient(job.ask.licences):
        return "it lacks licences, and no job is preempted for licences"
    over = cycle.limits.over(job, now)
    if over is not None:
        limit = _LIMITS.get(over.reason, "it is over a quota, share or budget")
        return f"{limit}, and no job is preempted for that"
    if cycle.search.find(job, now) is not None:
        return "it fits on free resources, so no job has to be preempted for it"
    if all(strategy.reach(job) is None for strategy in strategies):
        return _no_reach_text(cycle)
    if cycle.preemption.victim_queues(job) == frozenset():
        return f"jobs in queue {printable(job.spec.queue)} preempt no jobs (may_preempt)"
    ending, at = preemptor.ends_anyway(job, now, cycle.search.reserved_for_others(job, now))
    if ending:
        return _ends_anyway_text(ending, at, now)
    if _plan(cycle, preemptor.without_guards(_LIFTED), job, now) is None:
        return _too_little_text(cycle, job, now)
    if _plan(cycle, preemptor, job, now) is not None:
        return "jobs can be preempted for it once it is the first waiting job"
    for name in _LIFTED:
        plan = _plan(cycle, preemptor.without_guards((name,)), job, now)
        if plan is not None:
            return _guard_text(cycle, name, plan, now)
    return "several of the limits in [preemption] are reached: " + ", ".join(
        _blocking_guards(cycle, preemptor, job, now)
    )


def _ends_anyway_text(ending: list[Job], at: float, now: float) -> str:
    labels = ", ".join(job.label for job in ending)
    jobs, verb = ("job", "ends") if len(ending) == 1 else ("jobs", "end")
    return f"{jobs} {labels} {verb} in {duration(at - now)} anyway, and then it fits (spare_ending_s)"


def _blocking_guards(cycle: Cycle, preemptor: Preemptor, job: Job, now: float) -> list[str]:
    """Return the names of the guards (limits of [preemption]) that together prevent the preemption.

    First ignore all guards. Then apply the guards again one by one. If no victims are found with a guard,
    ignore this guard again. Return the guards that are ignored at the end.
    """
    blocking = [*_LIFTED]
    for name in _LIFTED:
        fewer = [each for each in blocking if each != name]
        if _plan(cycle, preemptor.without_guards(fewer), job, now) is not None:
            blocking = fewer
    return blocking


def _plan(cycle: Cycle, preemptor: Preemptor, job: Job, now: float) -> PreemptionPlanned | None:
    return preemptor.plan(job, now, cycle.search.reserved_for_others(job, now))


def _guard_text(cycle: Cycle, name: str, plan: PreemptionPlanned, now: float) -> str:
    """Return a sentence about the guard `name` (a limit of [preemption]). The event `plan` contains the jobs
    that would be preempted without this guard.
    """
    guards, victims = cycle.preemption.guards, counted(len(plan.victims), "job")
    window = duration(guards.window_s)
    if name == "rate":
        allows = f"[preemption] rate allows {guards.rate} in {window}"
        if len(plan.victims) > guards.rate:
            return f"{victims} would have to be preempted for it at once, and {allows}"
        recent = len(cycle.preemption.recent(now))
        were = f"{counted(recent, 'job')} {'was' if recent == 1 else 'were'}"
        return f"{were} preempted in the last {window}, {victims} would have to be for it, and {allows}"
    protected = _protected(cycle, [each.job for each in plan.victims], now)
    limits = [cycle.preemption.guards_of(each) for each in protected] or [guards]
    if name == "max_per_job":
        times = counted(min(each.max_per_job for each in limits), "time")
        return f"jobs that could be preempted for it were preempted {times} already (max_per_job)"
    if name == "cooldown_s":
        ago = duration(max(each.cooldown_s for each in limits))
        return f"jobs that could be preempted for it were preempted less than {ago} ago (cooldown_s)"
    if name == "spare_ending_s":
        spared = duration(max(each.spare_ending_s for each in limits))
        return f"jobs that could be preempted for it are likely to end within {spared} (spare_ending_s)"
    least = duration(max(each.min_runtime_s for each in limits))
    return f"jobs that could be preempted for it have run for less than {least} (min_runtime_s)"


def _protected(cycle: Cycle, victims: Collection[int], now: float) -> list[Job]:
    """Return the jobs in `victims` that a guard (limit of [preemption]) of their own scheduler profile
    protects.
    """
    jobs, guards_of = [cycle.state.jobs[each] for each in victims], cycle.preemption.guards_of
    return [
        each
        for each in jobs
        if not is_preemptible(each, guards_of(each))
        or preemptible_from(each, guards_of(each)) > now
        or likely_ends(each, guards_of(each)).spares(now)
    ]


def _no_reach_text(cycle: Cycle) -> str:
    """Return a sentence that says why the waiting job may preempt no running job under any preemption
    strategy.
    """
    for strategy in cycle.placer.pipeline.strategies:
        # Only the wrapper of an external plugin (isolation.py) has the attribute `failure`.
        failure = getattr(strategy, "failure", "")
        if failure:
            return f"the preemption strategy {strategy.name} fails ({failure}), so it stops no job"
    return "no preemption strategy allows this job to preempt others"


def _too_little_text(cycle: Cycle, job: Job, now: float) -> str:
    """Return a sentence that says why no victims (jobs to preempt) are found even without guards (limits of
    [preemption]).
    """
    shape = cycle.placer.shape(job.ask)
    running = [] if shape is None else _jobs_on_usable_nodes(cycle, job, shape, now)
    if not running:
        return "no job runs on the nodes that it may use"
    allowed = cycle.preemption.stoppable(job, running, now)
    protections = Counter(_protection(cycle, job, each, each.id in allowed, now) for each in running)
    able, every = protections.pop("", 0), counted(len(running), "job")
    others = ", ".join(f"{count} {text}" for text, count in sorted(protections.items()))
    if not able:
        return f"no job on the nodes that it may use may be preempted for it: {others}"
    if not others:
        return f"to preempt the {every} on the nodes that it may use would not free enough resources"
    return (
        f"only {able} of the {every} on the nodes that it may use may be preempted for it, which would not "
        f"free enough resources: {others}"
    )


def _jobs_on_usable_nodes(cycle: Cycle, job: Job, shape: Shape, now: float) -> list[Job]:
    """Return the running jobs on nodes that are usable for the waiting job.

    A node is usable if the waiting job may run on the node and may preempt jobs on the node.
    """
    state = cycle.state
    usable = cycle.placer.possible_nodes(shape.part)
    barred = cycle.preemption.barred(job, shape, now, cycle.search.reserved_for_others(job, now))
    if barred is not None:
        usable = usable & ~barred
    found = {each for row in np.flatnonzero(usable) for each in state.nodes.rows[int(row)].held}
    return [state.jobs[each] for each in sorted(found)]


def _protection(cycle: Cycle, job: Job, running: Job, allowed: bool, now: float) -> str:
    """Return a phrase that names what protects the job `running` from preemption for the waiting job `job`.
    Return an empty text if nothing protects it. Guards (limits of [preemption]) with a time or a count, such
    as the cooldown, are ignored.

    `allowed` is True if a preemption strategy allows the preemption.
    """
    nodes = cycle.state.nodes.by_name
    if running.stopping is not None:
        return "being stopped already"
    if not is_preemptible(running, NO_GUARDS):
        return "protected by --not-preemptible"
    if not cycle.preemption.guards_of(running).preemptible:
        return f"in queue {printable(running.spec.queue)}, which is not preemptible"
    if preemptible_from(running, NO_GUARDS) > now:
        return "protected by --min-runtime"
    if not all(nodes[member.allocation.node].up for member in running.running):
        return "on a node that is away"
    allows = cycle.preemption.victim_queues(job)
    if allows is not None and running.spec.queue not in allows:
        return f"in queue {printable(running.spec.queue)}, which is not in may_preempt of its queue"
    return "" if allowed else f"excluded by {_strategy_names(cycle)}"


def _strategy_names(cycle: Cycle) -> str:
    names = [each.name for each in cycle.placer.pipeline.strategies]
    return f"the strateg{'ies' if len(names) > 1 else 'y'} {', '.join(names)}"
