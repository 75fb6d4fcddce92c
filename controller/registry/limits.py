"""Computes from [access.limits] the greatest values (ceilings) that users and operators may request, such as
the highest priority, and finds mistakes in this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.config import Config, ConfigProblem, LimitSection, problem_at
from controller.core.quota.ceilings import Ceiling, Ceilings


def ceilings_of(config: Config) -> Ceilings:
    """Return the greatest values, such as the highest priority, that users and operators may request."""
    section = config.access.limits

    def tables(found: Mapping[str, LimitSection]) -> dict[str, Ceiling]:
        return {name: _ceiling(each) for name, each in found.items()}

    return Ceilings(
        _limits_of_all(config),
        _ceiling(section.operators),
        tables(section.users),
        tables(section.projects),
        tables(section.queues),
        _own_priorities(config),
    )


def queue_priority_caps(config: Config) -> dict[str, int]:
    """Return the highest priority that users may request in each queue. Queues that do not limit the priority
    are left out.
    """
    older = {
        name: each.priority for name, each in config.access.limits.queues.items() if each.priority is not None
    }
    return {**older, **_own_priorities(config)}


def _own_priorities(config: Config) -> dict[str, int]:
    return {name: each.max_priority for name, each in config.queues.items() if each.max_priority is not None}


def _ceiling(section: LimitSection) -> Ceiling:
    return Ceiling(**section.model_dump(include=set(LimitSection.model_fields)))


def _limits_of_all(config: Config) -> Ceiling:
    """Return the greatest values that any user may request, from [access.limits].

    With `[backfill] deadlines = "lift"`, a job with a deadline can start before all other jobs. Therefore
    users may then request a deadline only if a table of [access.limits] permits this.
    """
    usual = _ceiling(config.access.limits)
    return (
        usual if usual.deadline is not None else replace(usual, deadline=config.backfill.deadlines != "lift")
    )


def raised_open_projects(config: Config) -> list[ConfigProblem]:
    """Return a problem for each project without members that has higher limits than [access.limits] sets for
    all users. Every user may submit to such a project and would get the higher limits.
    """
    usual, members = _limits_of_all(config), {name for name, each in config.projects.items() if each.members}
    problems = []
    for name, each in config.access.limits.projects.items():
        raised = [
            key
            for key in LimitSection.model_fields
            if (most := getattr(each, key)) is not None
            and (bound := getattr(usual, key)) is not None
            and most > bound
        ]
        if raised and name not in members:
            message = f"every user may submit to project {name!r}, and would have this limit"
            hint = f"Name its members: [projects.{name}] members = [...]."
            key = ("access", "limits", "projects", name, raised[0])
            problems.append(problem_at(config.source, key, message, hint))
    return problems
