"""Checks a submitted job: the rules of its queue, and the quotas of its tenants (user, project and queue)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace

from controller.core.cluster.gpus.gpu_requirements import milli_by_model
from controller.core.model.decision.decision import Refusal
from controller.core.model.request import ResourceRequest
from controller.core.placement.placer import Placer, quota_need
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.core.quota.quotas import Quotas
from controller.core.quota.usage_counters import QUEUED, RUNNING, TenantKey, queue_user
from wire.cluster.quota import SCOPES
from wire.job.spec import JobSpec
from wire.text import counted, duration, printable

DEFAULT_QUEUE = "default"
LONGEST_NAME = 200
NO_OTHER_JOBS: Mapping[TenantKey, int] = {}
QUOTA_HINT = "'corral quota list' shows all quotas and how much of each is used."


def apply_queue_rule(rules: QuotaConfig, spec: JobSpec, user: str) -> JobSpec | Refusal:
    """Return the spec with the default time limit and the node labels of its queue added. Return a refusal if
    the queue does not accept the job.
    """
    if not rules.queues:
        return spec
    rule = rules.queues.get(spec.queue)
    if rule is None:
        if spec.queue == DEFAULT_QUEUE:
            return spec
        return Refusal(
            "invalid", f"there is no queue {printable(spec.queue)!r}", "queue", _nearest(rules, spec.queue)
        )
    refused = _queue_refusal(rule, spec, user)
    if refused is not None:
        return refused
    limit = spec.time_limit_s
    if limit is None:
        limit = rule.default_time_limit_s or rule.max_time_limit_s
    if limit is not None and rule.max_time_limit_s is not None and limit > rule.max_time_limit_s:
        message = f"queue {spec.queue!r} takes jobs of at most {duration(rule.max_time_limit_s)}"
        return Refusal("invalid", message, "time_limit_s", "Ask for less, or for another queue.")
    for key, value in rule.select.items():
        if spec.selector.get(key, value) != value:
            message = f"queue {spec.queue!r} has only nodes with {key}={value}"
            return Refusal("invalid", message, f"selector.{key}", "Leave it out, or ask for another queue.")
    if limit == spec.time_limit_s and not rule.select:
        return spec
    return replace(spec, time_limit_s=limit, selector={**spec.selector, **rule.select})


def labels_added_by_queue(submitted: JobSpec, admitted: JobSpec) -> tuple[str, ...]:
    """Return the names of the node labels that a queue added to a job's node selector, sorted.

    `submitted` is the job's spec before the rules of the queue were applied, `admitted` is the spec
    afterwards.
    """
    if admitted.selector is submitted.selector:
        return ()
    return tuple(sorted(admitted.selector.keys() - submitted.selector.keys()))


def _queue_refusal(rule: QueueRule, spec: JobSpec, user: str) -> Refusal | None:
    if rule.users and user not in rule.users:
        message = f"queue {spec.queue!r} is not for user {printable(user)!r}"
        return Refusal("not_allowed", message, "queue", "Ask an operator, or for another queue.")
    if rule.projects and spec.project not in rule.projects:
        message = f"queue {spec.queue!r} is not for project {printable(spec.project)!r}"
        return Refusal("not_allowed", message, "queue", f"It is for {', '.join(rule.projects)}.")
    least, most = rule.min_gpus_per_job, rule.max_gpus_per_job
    if least is not None and spec.gpus < least:
        message = f"queue {spec.queue!r} takes jobs of at least {counted(least, 'GPU')}"
        return Refusal("invalid", message, "gpus", "Ask for more, or for another queue.")
    if most is not None and spec.gpus > most:
        message = f"queue {spec.queue!r} takes jobs of at most {counted(most, 'GPU')}"
        return Refusal("invalid", message, "gpus", "Ask for less, or for another queue.")
    return None


def _nearest(rules: QuotaConfig, name: str) -> str:
    names = sorted({*rules.queues, DEFAULT_QUEUE})
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}."


def hours_refusal(quotas: Quotas, spec: JobSpec, now: float) -> Refusal | None:
    """Return a refusal if the next start hours of the queue begin too late for the job's deadline; otherwise
    None.
    """
    closed = quotas.closed(spec.queue, now)
    if closed is None or spec.deadline_at is None:
        return None
    if closed.opens_at + (spec.time_limit_s or 0.0) <= spec.deadline_at:
        return None
    message = f"can never be met: {closed}"
    return Refusal("invalid", message, "deadline_at", "Ask for a later deadline, or for another queue.")


def unknown_reservation(known: Collection[str], spec: JobSpec) -> Refusal | None:
    """Return a refusal if the job names an advance reservation that does not exist; otherwise None."""
    if not spec.reservation or spec.reservation in known:
        return None
    message = f"there is no reservation {printable(spec.reservation)!r}"
    close = difflib.get_close_matches(spec.reservation, known, n=1, cutoff=0.6)
    hint = f"Did you mean {printable(close[0])!r}? " if close else ""
    return Refusal("invalid", message, "reservation", f"{hint}'corral reserve list' shows the reservations.")


def quota_refusal(
    quotas: Quotas,
    placer: Placer,
    spec: JobSpec,
    ask: ResourceRequest,
    user: str,
    count: int,
    now: float,
    was: JobSpec | None = None,
    with_these: Mapping[TenantKey, int] = NO_OTHER_JOBS,
) -> Refusal | None:
    """Return a refusal if quotas do not allow `count` more jobs with this spec to be queued; otherwise None.

    The jobs are refused if a tenant (user, project or queue) would have too many waiting jobs, or if one job
    alone exceeds a limit. For an edit, `was` is the job's spec before the edit. The tenants of `was` already
    count the job as waiting, so the job is not counted twice for these tenants. `with_these` contains the
    number of other jobs, by tenant, that will be queued together with these jobs.
    """
    if quotas.unlimited:
        return None
    shape = placer.shape(ask)
    fewest = ask.least if shape is None else shape.fewest(ask)
    need = quota_need(placer, ask, spec.time_limit_s, quotas.accounts, fewest)
    never = quotas.never_allowed(user, spec, need) or _never_on_any_model(quotas, placer, spec, ask, user)
    # Do not refuse the job because of a limit in percent of the cluster while some nodes have not connected
    # yet: the limit grows when they connect.
    unknown = placer.nodes.never_connected or not quotas.gpus.total
    if never is not None and not (never.share and unknown):
        message = f"can never start: {never.never_text}"
        return Refusal("over_quota", message, hint=f"Ask for less. {QUOTA_HINT}")
    none = [0] * len(quotas.models)
    counted = () if was is None else quotas.accounts.tenants_of(user, was)
    kept = {account.key: [0, 0, 0, 0, -count, 0, *none] for account in counted}
    kept.update((key, [0, 0, 0, 0, others, 0, *none]) for key, others in with_these.items())
    over = quotas.over_hard(user, spec, (0, 0, 0, 0, count, 0, *none), now, kept)
    if over is None:
        others = with_these.get(queue_user(spec.queue, user), 0)
        return _too_many_jobs(quotas, spec, user, count, was, others)
    more = f", and these are {count} more" if count > 1 else ""
    return Refusal("over_quota", f"{over}{more}", hint=f"Wait until some have started. {QUOTA_HINT}")


def _never_on_any_model(
    quotas: Quotas, placer: Placer, spec: JobSpec, ask: ResourceRequest, user: str
) -> LimitExceeded | None:
    """Return the quota of a GPU model that the job alone would exceed. Return None if the quota of at least
    one suitable GPU model is large enough for the job.
    """
    shape = placer.shape(ask) if quotas.models else None
    if shape is None:
        return None
    nodes = shape.fewest(ask)
    suited = milli_by_model(shape.part, placer.nodes.columns)
    limits = [quotas.never_on_model(user, spec, model, milli * nodes) for model, milli in suited.items()]
    return limits[0] if limits and None not in limits else None


def _too_many_jobs(
    quotas: Quotas, spec: JobSpec, user: str, count: int, was: JobSpec | None, others: int
) -> Refusal | None:
    """Return a refusal if the user would have too many waiting and running jobs in the queue; otherwise None.
    `was` is the spec before an edit. `others` is the number of other jobs that will be queued together with
    these jobs.
    """
    most = quotas.rules.queue(spec.queue).max_jobs_per_user
    if most is None:
        return None
    used = quotas.accounts.tenant(queue_user(spec.queue, user)).used
    present = used[QUEUED] + used[RUNNING] + others
    more = count if was is None or was.queue != spec.queue else 0
    if not more or present + more <= most:
        return None
    message = (
        f"user {printable(user)!r} has {counted(present, 'job')} in queue {spec.queue!r}, "
        f"and may have {counted(most, 'job')} there"
    )
    return Refusal("over_quota", message, "queue", "Wait until some have ended, or ask for another queue.")


def tenant_problem(scope: str, name: str) -> Refusal | None:
    """Return a refusal if the scope (user, project or queue) or the name of a tenant is invalid, otherwise
    None.
    """
    if scope not in SCOPES:
        return Refusal("invalid", f"must be one of {', '.join(SCOPES)}", "scope")
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return Refusal("invalid", f"must be printable and at most {LONGEST_NAME} characters", "name")
    return None
