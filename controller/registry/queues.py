"""Computes the rules of the queues from [queues.NAME], and finds mistakes, and keys without effect, in these
tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from controller.config import Config, ConfigProblem, Key, QueueSection, nearest, problem_at
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.hours.week_hours import WeekHours, windows_of
from controller.core.quota.queue_rules import EXEMPT_FAIR_SHARE, EXEMPT_QUOTA, QueueRule
from controller.plugins.preemption.reclaim_strategies import FairShareStrategy
from controller.registry.checks.policy_summary import policies, uses_shares
from wire.cluster.quota import ANY_NAME
from wire.names import priority_name

_AS_WRITTEN = (
    "priority",
    "max_running",
    "default_time_limit_s",
    "max_time_limit_s",
    "default_project",
    "min_gpus_per_job",
    "max_gpus_per_job",
    "preemptible",
    "min_runtime_s",
    "max_preemptions",
    "cooldown_s",
    "max_running_per_user",
    "max_gpus_per_user",
    "max_jobs_per_user",
    "keep_free_gpus",
    "wait_target_s",
    "qos",
)
"""The keys of [queues.NAME] whose values are copied unchanged into a QueueRule."""


def queue_rules_of(config: Config) -> dict[str, QueueRule]:
    """Return the rule of each queue that has a table in scheduler.toml, by queue."""
    return {name: _rule(each, config.scheduler.time_zone) for name, each in config.queues.items()}


def _rule(section: QueueSection, zone: str) -> QueueRule:
    return QueueRule(
        **section.model_dump(include=set(_AS_WRITTEN)),
        users=tuple(section.users),
        projects=tuple(section.projects),
        select=dict(section.select),
        defaults=section.defaults,
        exempt=frozenset(section.exempt),
        hours=week_hours_of(section.hours, zone) if section.hours else None,
        keep_free_hours=week_hours_of(section.keep_free_hours, zone) if section.keep_free_hours else None,
        may_preempt=None if section.may_preempt is None else frozenset(section.may_preempt),
    )


def week_hours_of(texts: Sequence[str], zone: str) -> WeekHours:
    windows = [window for text in texts for window in windows_of(text)]
    return WeekHours(tuple(texts), tuple(sorted(windows)), ZoneInfo(zone), zone)


def idle_policy_of(config: Config) -> IdlePolicy:
    """Return, for each queue, the time after which GPUs count as idle, and what happens to jobs with idle
    GPUs.
    """
    gpus = config.gpus

    def of_queue(section: QueueSection) -> IdlePolicy:
        return IdlePolicy(
            gpus.idle_after_s if section.idle_after_s is None else section.idle_after_s,
            IdleAction(section.idle or gpus.idle),
            gpus.idle_grace_s if section.idle_grace_s is None else section.idle_grace_s,
            gpus.idle_keep_most_s,
        )

    default = of_queue(QueueSection())
    found = {name: of_queue(each) for name, each in config.queues.items()}
    return replace(default, of_queues={name: each for name, each in found.items() if each != default})


def queue_problems(config: Config) -> list[ConfigProblem]:
    """Return the mistakes in [queues]: a maximum priority that differs from [access.limits.queues], a default
    project that the queue does not accept, and queues in `may_preempt` that do not exist.
    """
    return [*_priority_problems(config), *_project_problems(config), *_unknown_queues(config)]


def _priority_problems(config: Config) -> Iterator[ConfigProblem]:
    for name, each in config.queues.items():
        older = config.access.limits.queues.get(name)
        if older is None or None in (older.priority, each.max_priority):
            continue
        if older.priority != each.max_priority:
            there = config.source.origin(("access", "limits", "queues", name, "priority"))
            other = priority_name(older.priority or 0)
            message = f"[access.limits.queues.{name}] sets another priority, {other} ({there})"
            hint = "Leave out the key in [access.limits], which is the older place of this limit."
            yield problem_at(config.source, ("queues", name, "max_priority"), message, hint)


def _project_problems(config: Config) -> Iterator[ConfigProblem]:
    for name, each in config.queues.items():
        project = each.default_project
        if project is not None and each.projects and project not in each.projects:
            message = f"project {project!r} may not use this queue"
            key = ("queues", name, "default_project")
            yield problem_at(config.source, key, message, "Add the project to `projects`.")


def _unknown_queues(config: Config) -> Iterator[ConfigProblem]:
    known = {*config.queues, DEFAULT_QUEUE}
    for name, each in config.queues.items():
        for index, queue in enumerate(each.may_preempt or ()):
            if queue not in known:
                key = ("queues", name, "may_preempt", index)
                yield problem_at(config.source, key, f"there is no queue {queue!r}", nearest(queue, known))


def dead_preemption_keys(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each key of a queue about preemption that has no effect."""
    preempts = any(each.strategies for each in policies(pipeline))
    rules = pipeline.rules
    for name, each in config.queues.items():
        above = ("queues", name)
        if each.may_preempt and not preempts:
            message = "has no effect, because [preemption] strategies is empty"
            yield problem_at(config.source, (*above, "may_preempt"), message)
        for index, queue in enumerate(each.may_preempt or ()):
            if not rules.queue(queue).preemptible:
                message = f"has no effect, because queue {queue!r} is not preemptible"
                yield problem_at(config.source, (*above, "may_preempt", index), message)
        for key in ("min_runtime_s", "max_preemptions", "cooldown_s"):
            if getattr(each, key) is not None and not each.preemptible:
                message = "has no effect, because the queue is not preemptible"
                yield problem_at(config.source, (*above, key), message)


def dead_exemptions(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each value without effect in the key `exempt` of a queue. "quota" has no effect if
    no user and no project has a quota. "fair_share" has no effect if neither the order of jobs nor a
    preemption strategy depends on the usage of projects.
    """
    provider = pipeline.rules.provider
    quotas = any(
        provider.quota(scope, ANY_NAME) is not None or any(provider.names(scope))
        for scope in ("user", "project")
    )
    compared = any(uses_shares(each.order) for each in policies(pipeline)) or any(
        isinstance(strategy, FairShareStrategy) for each in policies(pipeline) for strategy in each.strategies
    )
    dead = {
        EXEMPT_QUOTA: "" if quotas else "no user and no project has a quota",
        EXEMPT_FAIR_SHARE: "" if compared else "the order of jobs ignores the usage of projects",
    }
    for name, each in config.queues.items():
        for index, what in enumerate(each.exempt):
            if dead[what]:
                key = ("queues", name, "exempt", index)
                yield problem_at(config.source, key, f"{what!r} has no effect, because {dead[what]}")


def dead_kept_gpus(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each queue with `keep_free_hours` and no `keep_free_gpus`, and for each queue that
    keeps GPUs free although no queue has a lower priority.
    """
    rules = pipeline.rules
    for name, each in config.queues.items():
        if each.keep_free_hours and not each.keep_free_gpus:
            key = ("queues", name, "keep_free_hours")
            yield problem_at(config.source, key, "has no effect without keep_free_gpus")
        lower = any(rules.queue(other).priority < each.priority for other in (*config.queues, DEFAULT_QUEUE))
        if each.keep_free_gpus and not lower:
            message = "has no effect, because no queue has a lower priority"
            yield problem_at(config.source, ("queues", name, "keep_free_gpus"), message)


def hours_without_zone(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning, at the first key `hours` or `keep_free_hours` of the file, if [scheduler] time_zone is
    not set.
    """
    if "time_zone" in config.scheduler.model_fields_set:
        return
    keys: list[Key] = [
        ("queues", name, key)
        for name, each in config.queues.items()
        for key in ("hours", "keep_free_hours")
        if getattr(each, key)
    ]
    keys += [("hours", name, "hours") for name in config.hours]
    if keys:
        message = f"these hours are in {config.scheduler.time_zone}, because no time zone is set"
        hint = 'Set [scheduler] time_zone, such as "Europe/Berlin".'
        yield problem_at(config.source, keys[0], message, hint)
