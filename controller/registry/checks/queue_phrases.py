"""Describes the rules of a queue in short phrases, for `corral config check` and `corral queues`."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE, EXEMPT_QUOTA, QueueRule
from wire.names import priority_name
from wire.text import counted, duration, printable


def queue_phrases(rule: QueueRule, idling: IdlePolicy, queue: str, cap: int | None) -> Iterator[str]:
    """Yield a phrase about each rule of the queue except its priority, time limits, users, projects, nodes
    and quota. `cap` is the highest priority that users may request in the queue, or None.
    """
    if cap is not None:
        yield f"job priority at most {priority_name(cap)}"
    if rule.default_project is not None:
        yield f"jobs without --project go to {printable(rule.default_project)}"
    yield from _gpus_per_job(rule)
    yield from _limits_of_users(rule)
    if rule.hours is not None:
        yield f"starts jobs only {rule.hours}"
    if rule.keep_free_gpus:
        when = "" if rule.keep_free_hours is None else f" {rule.keep_free_hours}"
        yield f"keeps {counted(rule.keep_free_gpus, 'GPU')} free{when}"
    yield from _preemption(rule)
    if queue in idling.of_queues:
        yield _idle(idling.of(queue))
    if EXEMPT_QUOTA in rule.exempt:
        yield "exempt from the quotas of users and projects"
    if EXEMPT_FAIR_SHARE in rule.exempt:
        yield "not charged to shares"


def _gpus_per_job(rule: QueueRule) -> Iterator[str]:
    least, most = rule.min_gpus_per_job, rule.max_gpus_per_job
    if least is not None and most is not None:
        yield f"{least:g} to {counted(most, 'GPU')} per job"
    elif least is not None:
        yield f"at least {counted(least, 'GPU')} per job"
    elif most is not None:
        yield f"at most {counted(most, 'GPU')} per job"


def _limits_of_users(rule: QueueRule) -> Iterator[str]:
    limits = (
        (rule.max_running_per_user, "running job"),
        (rule.max_gpus_per_user, "GPU"),
        (rule.max_jobs_per_user, "waiting or running job"),
    )
    texts = [counted(most, thing) for most, thing in limits if most is not None]
    if texts:
        yield f"each user at most {', '.join(texts)}"


def _preemption(rule: QueueRule) -> Iterator[str]:
    if not rule.preemptible:
        yield "its jobs are never preempted or moved"
    elif rule.min_runtime_s is not None:
        yield f"its jobs may be preempted after {duration(rule.min_runtime_s)}"
    if rule.may_preempt is not None:
        queues = ", ".join(map(printable, sorted(rule.may_preempt)))
        yield f"may preempt only jobs in {queues}" if queues else "its jobs preempt no jobs"


def _idle(policy: IdlePolicy) -> str:
    if not policy.after_s:
        return "idle jobs are not flagged"
    after = f"jobs with idle GPUs are flagged after {duration(policy.after_s)}"
    if policy.reclaim is IdleAction.FLAG:
        return after
    what = "cancelled" if policy.reclaim is IdleAction.CANCEL else "queued again"
    return f"{after} and {what} {duration(policy.grace_s)} later"
