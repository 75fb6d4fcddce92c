"""Checks keys of scheduler.toml whose effect depends on other tables."""

from __future__ import annotations

from controller.config import Config, ConfigProblem, Key, Source, problem_at

REQUIRED = ("available", "capacity", "gpu")
"""Filters that every configuration must list."""


def filter_problems(names: list[str], key: Key, source: Source) -> list[ConfigProblem]:
    problems = [
        problem_at(source, (*key, index), f"the filter {name!r} is listed twice", "Remove one.")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        message = f"the required filter {', '.join(missing)} is missing: jobs could get full nodes"
        problems.append(problem_at(source, key, message, f"Put {', '.join(REQUIRED)} first in the list."))
    return problems


def unfiltered_settings(config: Config) -> list[ConfigProblem]:
    """Return a problem for each setting about nodes (node taints, node labels of a queue) that has no effect
    because the list of filters lacks the filter plugin for the setting."""
    names = {each.name for each in config.scheduler.filters}
    settings: list[tuple[str, Key]] = [
        ("selector", ("queues", name, "select")) for name, each in config.queues.items() if each.select
    ]
    settings += [("taints", ("nodes", name, "taints")) for name, each in config.nodes.items() if each.taints]
    return [
        problem_at(
            config.source, key, f"has no effect without the filter {name!r}", "Add it to scheduler.filters."
        )
        for name, key in settings
        if name not in names
    ]
