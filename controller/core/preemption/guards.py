"""Guards: the settings that protect a running job from preemption. The guards come from the job's scheduler
profile, its queue and its own options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.job import NEVER, Job
from controller.core.quota.queue_rules import QueueRule
from wire.names import JobState

GuardsOf = Callable[[Job], PreemptionGuards]
"""Returns the guards of a running job. These guards are the settings of the running job's own scheduler
profile and queue, and not those of the preempting job.
"""


def guards_in_queue(guards: PreemptionGuards, rule: QueueRule) -> PreemptionGuards:
    """Return the guards of a scheduler profile, changed by the settings of a running job's queue (`rule`)."""
    if rule.preemptible and rule.sets_no_guard:
        return guards
    return replace(
        guards,
        min_runtime_s=guards.min_runtime_s if rule.min_runtime_s is None else rule.min_runtime_s,
        max_per_job=guards.max_per_job if rule.max_preemptions is None else rule.max_preemptions,
        cooldown_s=guards.cooldown_s if rule.cooldown_s is None else rule.cooldown_s,
        preemptible=rule.preemptible,
    )


def is_preemptible(job: Job, guards: PreemptionGuards) -> bool:
    """Return whether the job may be preempted, now or later. `preemptible_from` returns the earliest time."""
    allowed = guards.preemptible and job.spec.preemptible
    return allowed and job.stopping is None and len(job.preemptions) < guards.max_per_job


class LikelyEnds(NamedTuple):
    """The times at which a running job is likely to end. The job is not preempted in the last `spare_s`
    seconds before each of these times.

    `predicted` is the end after the predicted run time. `limit` is the end after the time limit and the grace
    time. A time that is not known is NEVER.
    """

    spare_s: float
    predicted: float
    limit: float

    def spares(self, now: float) -> bool:
        """Return whether the job is spared: a job that is likely to end within `spare_s` seconds is not
        preempted now.
        """
        return self.at(now) <= now + self.spare_s

    def at(self, now: float) -> float:
        """Return the next likely end of the job. The result is the predicted end, or the end at the time
        limit if the predicted end is past. Return NEVER if both are past.
        """
        return min((end for end in (self.predicted, self.limit) if end > now), default=NEVER)


def likely_ends(job: Job, guards: PreemptionGuards) -> LikelyEnds:
    """Return the times at which a running job is likely to end, and the seconds before these times in which
    the job is not preempted.
    """
    began = job.started_at
    if began is None or not guards.spare_ending_s:
        return LikelyEnds(0.0, NEVER, NEVER)
    predicted = NEVER if job.predicted_s is None else began + job.predicted_s
    return LikelyEnds(guards.spare_ending_s, predicted, began + job.span)


def may_move(job: Job) -> bool:
    """Return whether the job may be moved when it is preempted. Other nodes are kept for a moved job, and the
    moved job starts there as soon as its present attempt has ended.

    An elastic job is not moved, because an elastic job can leave a node without a restart.
    """
    return job.state is JobState.RUNNING and not job.spec.gang.elastic


def preemptible_from(job: Job, guards: PreemptionGuards) -> float:
    """Return the time from which the job may be preempted. The result is the later of two times: the end of
    its minimum run time, and `cooldown_s` seconds after its last preemption. NEVER if the job is not placed.
    """
    began = job.started_at if job.started_at is not None else job.placed_at
    if began is None:
        return NEVER
    ready = began + max(guards.min_runtime_s, job.spec.min_runtime_s)
    if job.preemptions:
        ready = max(ready, job.preemptions[-1].at + guards.cooldown_s)
    return ready
