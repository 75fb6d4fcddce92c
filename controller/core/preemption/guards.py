"""Guards: what protects a running job from preemption, from its profile, its queue and its own options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.job import NEVER, Job
from controller.core.quota.queue_rules import QueueRule

GuardsOf = Callable[[Job], PreemptionGuards]
"""Returns the guards of a running job: those of its own profile and queue, not those of the job that preempts
it."""


def guards_in_queue(guards: PreemptionGuards, rule: QueueRule) -> PreemptionGuards:
    """Return the guards of a profile with the changes that the rule of a job's queue makes to them."""
    if rule.preemptible and rule.min_runtime_s is None:
        return guards
    least = guards.min_runtime_s if rule.min_runtime_s is None else rule.min_runtime_s
    return replace(guards, min_runtime_s=least, preemptible=rule.preemptible)


def is_preemptible(job: Job, guards: PreemptionGuards) -> bool:
    """Return whether the job may be preempted at any time. `preemptible_from` returns the earliest time."""
    allowed = guards.preemptible and job.spec.preemptible
    return allowed and job.stopping is None and len(job.preemptions) < guards.max_per_job


def preemptible_from(job: Job, guards: PreemptionGuards) -> float:
    """Return the time from which the job may be preempted.

    It is the end of the job's minimum run time, but at least `cooldown_s` seconds after its last preemption.
    """
    began = job.started_at if job.started_at is not None else job.placed_at
    if began is None:
        return NEVER
    ready = began + max(guards.min_runtime_s, job.spec.min_runtime_s)
    if job.preemptions:
        ready = max(ready, job.preemptions[-1].at + guards.cooldown_s)
    return ready
