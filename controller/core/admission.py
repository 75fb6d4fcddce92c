"""What may be queued: the rules of the queue, and the quotas that concern jobs not yet running."""

from __future__ import annotations

import difflib
from dataclasses import replace

from controller.core.accounts import Amount
from controller.core.inputs import Refusal
from controller.core.jobs import NEVER
from controller.core.needs import needs_of
from controller.core.placement import Placer
from controller.core.quotas import QueueRule, Quotas, Rules, need_of
from controller.core.requests import Ask
from wire.quota import SCOPES
from wire.spec import JobSpec
from wire.text import duration, plain

DEFAULT_QUEUE = "default"
LONGEST_NAME = 200
QUOTA_HINT = "'corral quota list' shows what there is, and what is used."


def admit(rules: Rules, spec: JobSpec, user: str) -> JobSpec | Refusal:
    """The job as its queue takes it: with the queue's time limit and nodes; or why it does not."""
    if not rules.queues:
        return spec
    rule = rules.queues.get(spec.queue)
    if rule is None:
        if spec.queue == DEFAULT_QUEUE:
            return spec
        return Refusal(
            "invalid", f"there is no queue {plain(spec.queue)!r}", "queue", _nearest(rules, spec.queue)
        )
    refused = _not_for(rule, spec, user)
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


def added_labels(asked: JobSpec, admitted: JobSpec) -> tuple[str, ...]:
    """The labels of the selector that nobody asked for: those of the queue."""
    return tuple(sorted(admitted.selector.keys() - asked.selector.keys()))


def _not_for(rule: QueueRule, spec: JobSpec, user: str) -> Refusal | None:
    if rule.users and user not in rule.users:
        message = f"queue {spec.queue!r} is not for user {plain(user)!r}"
        return Refusal("not_allowed", message, "queue", "Ask an operator, or for another queue.")
    if rule.projects and spec.project not in rule.projects:
        message = f"queue {spec.queue!r} is not for project {plain(spec.project)!r}"
        return Refusal("not_allowed", message, "queue", f"It is for {', '.join(rule.projects)}.")
    return None


def _nearest(rules: Rules, name: str) -> str:
    names = sorted({*rules.queues, DEFAULT_QUEUE})
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}."


def over_quota(
    quotas: Quotas,
    placer: Placer,
    spec: JobSpec,
    ask: Ask,
    user: str,
    count: int,
    now: float,
    was: JobSpec | None = None,
) -> Refusal | None:
    """Why so many more jobs may not be queued: too many wait already, or one alone would break a limit.

    With what a job `was` before an edit: where it is counted already it is not counted again.
    """
    if quotas.silent:
        return None
    need = need_for(placer, ask, spec.time_limit_s, quotas.accounts.window_s, ask.least)
    never = quotas.never(user, spec, need)
    if never is not None:
        message = f"can never start: {never.never}"
        return Refusal("over_quota", message, hint=f"Ask for less. {QUOTA_HINT}")
    counted = () if was is None else quotas.accounts.of(user, was)
    kept = {account.key: [0, 0, 0, 0, -count, 0] for account in counted}
    over = quotas.over_hard(user, spec, (0, 0, 0, 0, count, 0), now, kept)
    if over is None:
        return None
    more = f", and these are {count} more" if count > 1 else ""
    return Refusal("over_quota", f"{over}{more}", hint=f"Wait until some have started. {QUOTA_HINT}")


def wrong_tenant(scope: str, name: str) -> Refusal | None:
    """Why nothing can have such a scope and name."""
    if scope not in SCOPES:
        return Refusal("invalid", f"must be one of {', '.join(SCOPES)}", "scope")
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        return Refusal("invalid", f"must be printable and at most {LONGEST_NAME} characters", "name")
    return None


def need_for(
    placer: Placer, ask: Ask, limit_s: float | None, window_s: float, fewer: int | None = None
) -> Amount:
    """What a job of this class counts for once it runs: the most it may get, as long as it has nothing.

    With `fewer`, on so many nodes and no more.
    """
    shape = placer.shape(ask)
    part, nodes = (shape.part, shape.nodes) if shape else (ask.part, ask.nodes or 1)
    nodes = nodes if fewer is None else min(nodes, fewer)
    gpu_milli = needs_of(part, placer.nodes.columns).most * nodes
    limit = NEVER if limit_s is None else limit_s
    return need_of(part.cpu_milli * nodes, part.memory_mib * nodes, gpu_milli, limit, window_s)
