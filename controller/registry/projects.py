"""Computes from scheduler.toml the declared projects and the users of each project. Also finds mistakes in
the tables [projects.NAME].
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config, ConfigProblem, problem_at
from controller.core.quota.projects import ProjectRules, UnknownProjects
from wire.cluster.quota import ANY_NAME

LEAVE_ONE_OUT = "Leave one of them out."


def project_rules_of(config: Config) -> ProjectRules:
    """Return the declared projects with their members, and whether jobs in other projects are accepted.

    If the key `unknown_projects` of [scheduler] is not set, jobs in other projects are refused if
    scheduler.toml has a table [projects.NAME], and accepted if it has no such table.
    """
    unknown = config.scheduler.unknown_projects or ("refuse" if config.projects else "open")
    return ProjectRules(
        UnknownProjects(unknown),
        frozenset(named_projects(config)),
        {name: frozenset(each.members) for name, each in config.projects.items() if each.members},
        {user: name for name, each in config.projects.items() for user in each.default_for},
        {name: each.default_project for name, each in config.queues.items() if each.default_project},
    )


def named_projects(config: Config) -> set[str]:
    """Return the names of all projects in scheduler.toml, including projects that occur only in a weight or
    limit of a tenant.
    """
    fair = config.fair_share
    of_hours = [name for each in config.hours.values() for name in each.weights]
    shares = {
        name.partition("/")[0] for name in (*fair.weights, *of_hours, *fair.soft_limits, *fair.hard_limits)
    }
    return (config.named_projects | (shares - config.organisations.keys())) - {ANY_NAME}


def open_projects(config: Config) -> list[str]:
    """Return the names of projects in scheduler.toml without members, to which all users may submit."""
    closed = {name for name, each in config.projects.items() if each.members}
    return sorted(config.named_projects - closed - {ANY_NAME})


def project_problems(config: Config) -> list[ConfigProblem]:
    """Return the mistakes in [projects]: keys that [fair_share] also sets, names of both a project and an
    organisation, users with two default projects, and users that may not use their default project.
    """
    return [*_share_problems(config), *_default_problems(config)]


def _share_problems(config: Config) -> Iterator[ConfigProblem]:
    source, fair, organisations = config.source, config.fair_share, config.organisations
    home = {project: name for name, projects in fair.organisations.items() for project in projects}
    for name, each in config.projects.items():
        above = ("projects", name)
        if each.weight is not None and name in fair.weights:
            there = source.origin(("fair_share", "weights", name))
            message = f"the weight of this project is set in [fair_share] weights too ({there})"
            yield problem_at(source, (*above, "weight"), message, LEAVE_ONE_OUT)
        if each.weight is not None and name in organisations:
            message = f"{name!r} is an organisation too, and both would have this weight"
            yield problem_at(source, (*above, "weight"), message, "Give the project another name.")
        if each.organisation is None:
            continue
        key = (*above, "organisation")
        if name in home:
            there = source.origin(("fair_share", "organisations", home[name]))
            message = f"[fair_share] organisations has this project in {home[name]!r} already ({there})"
            yield problem_at(source, key, message, LEAVE_ONE_OUT)
        if name in organisations:
            message = f"{name!r} is an organisation itself"
            yield problem_at(source, key, message, "Give the project another name.")
        elif each.organisation in config.projects or each.organisation in home:
            message = f"{each.organisation!r} is a project, and projects have no projects below them"
            yield problem_at(source, key, message, "Give the organisation another name.")


def _default_problems(config: Config) -> Iterator[ConfigProblem]:
    first: dict[str, str] = {}
    for name, each in config.projects.items():
        for index, user in enumerate(each.default_for):
            key = ("projects", name, "default_for", index)
            other = first.setdefault(user, name)
            if other != name:
                message = f"project {other!r} is the default of user {user!r} already"
                yield problem_at(config.source, key, message, LEAVE_ONE_OUT)
            if each.members and user not in each.members:
                message = f"user {user!r} is not a member of project {name!r}"
                yield problem_at(config.source, key, message, "Add the user to `members`.")
