"""Computes the rules of the queues from [queues.NAME], and finds mistakes in these tables."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config, ConfigProblem, QueueSection, problem_at
from controller.core.quota.queue_rules import QueueRule
from wire.names import priority_name

_AS_WRITTEN = (
    "priority",
    "max_running",
    "default_time_limit_s",
    "max_time_limit_s",
    "default_project",
    "min_gpus_per_job",
    "max_gpus_per_job",
)
"""The keys of [queues.NAME] whose values a QueueRule has without a change."""


def queue_rules_of(config: Config) -> dict[str, QueueRule]:
    """Return the rule of each queue that has a table in scheduler.toml, by queue."""
    return {name: _rule(each) for name, each in config.queues.items()}


def _rule(section: QueueSection) -> QueueRule:
    return QueueRule(
        **section.model_dump(include=set(_AS_WRITTEN)),
        users=tuple(section.users),
        projects=tuple(section.projects),
        select=dict(section.select),
        defaults=section.defaults,
    )


def queue_problems(config: Config) -> list[ConfigProblem]:
    """Return the mistakes in [queues]: a priority that [access.limits.queues] sets differently, and a default
    project that the queue does not accept.
    """
    return [*_priority_problems(config), *_project_problems(config)]


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
