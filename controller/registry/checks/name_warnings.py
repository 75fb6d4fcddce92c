"""Finds names in scheduler.toml without a match: misspelt projects, queues that do not exist, and labels that
no node has.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.config import Config, ConfigProblem, Key, nearest, problem_at
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.projects import DEFAULT_PROJECT, UnknownProjects
from wire.cluster.quota import ANY_NAME
from wire.job.placement.affinity import Operator, Term
from wire.text import printable

SIMILAR = 0.8
"""The least similarity of two names (0 to 1, as difflib computes it) at which one name may be a misspelling
of the other."""
_PARTS = re.compile(r"[^\W\d_]{3,}")
"""Finds the words of at least three letters in a name. Names with the same words, such as team-a and team-b,
are not misspellings of each other."""

Table = Key
"""The path of a table of scheduler.toml that contains names, such as ("quota", "projects")."""


def misspelt_projects(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each project that looks like a misspelling of another name.

    1. Collect the tables in which each project or organisation occurs.
    2. A project is suspect (possibly misspelt) if only one table names the project and there is no table
       [projects.NAME].
    3. A suspect project is a misspelling if a similar name is not suspect.
    4. If two similar names are both suspect, the name on the later line of the file is a misspelling. If both
       names are in the same table, they are different projects, and neither is a misspelling.

    Example: [fair_share] has a weight for "visoin", and [quota.projects] and [projects] have "vision".
    """
    found: dict[str, dict[Table, Key]] = defaultdict(dict)
    for table, key, name in _project_names(config):
        if name != ANY_NAME:
            found[name].setdefault(table, key)
    known = {*config.projects, DEFAULT_PROJECT}
    suspects = {
        name: next(iter(tables.items()))
        for name, tables in found.items()
        if len(tables) == 1 and name not in known
    }
    for name, (table, key) in suspects.items():
        others = [
            each
            for each in {*found, DEFAULT_PROJECT}
            if each != name
            and _similar(name, each)
            and (each not in suspects or _before(config, suspects[each], (table, key)))
        ]
        close = difflib.get_close_matches(name, sorted(others), n=1, cutoff=SIMILAR)
        if close:
            message = f"no other table names {printable(name)!r}"
            hint = f"Did you mean {printable(close[0])!r}? If not, declare it: [projects.{printable(name)}]."
            yield problem_at(config.source, key, message, hint)


def undeclared_default_projects(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each `default_project` of a queue that no other table names, because jobs in this
    project are refused or go to the project "default".
    """
    rules = pipeline.rules.projects
    if rules.unknown is UnknownProjects.OPEN:
        return
    refused = rules.unknown is UnknownProjects.REFUSE
    misspelt = {each.path for each in misspelt_projects(config, pipeline)}
    for queue, project in rules.queue_defaults.items():
        key = ("queues", queue, "default_project")
        if project == DEFAULT_PROJECT or project in rules.declared or key in misspelt:
            continue
        what = "are refused" if refused else f"go to project {DEFAULT_PROJECT!r}"
        message = f"there is no project {printable(project)!r}, so jobs without --project {what}"
        hint = f"Correct the name, or declare it: [projects.{printable(project)}]."
        yield problem_at(config.source, key, message, hint)


def _before(config: Config, one: tuple[Table, Key], other: tuple[Table, Key]) -> bool:
    """Return whether the two keys are in different tables, and `one` is on an earlier line of the file than
    `other`. `one` and `other` are pairs (table, key).
    """
    (table, key), (other_table, other_key) = one, other
    lines = (config.source.line(key) or 0, str(key)), (config.source.line(other_key) or 0, str(other_key))
    return table != other_table and lines[0] < lines[1]


def _similar(name: str, other: str) -> bool:
    if _PARTS.findall(name) == _PARTS.findall(other):
        return False
    return difflib.SequenceMatcher(None, name, other).ratio() >= SIMILAR


def _project_names(config: Config) -> Iterator[tuple[Table, Key, str]]:
    """Yield (table, key, name) for each place in scheduler.toml that names a project or an organisation.
    `key` is the path of this place, and `table` the path of the table that contains it.
    """
    fair, quotas = config.fair_share, _quota_names(config)
    keyed: dict[Table, Iterable[str]] = {
        ("projects",): config.projects,
        ("access", "limits", "projects"): config.access.limits.projects,
        ("quota", "projects"): quotas.get("projects") or (),
        ("fair_share", "organisations"): fair.organisations,
        ("fair_share", "weights"): fair.weights,
        ("fair_share", "soft_limits"): fair.soft_limits,
        ("fair_share", "hard_limits"): fair.hard_limits,
    }
    for hours, each in config.hours.items():
        keyed["hours", hours, "quota", "projects"] = each.quota.get("projects") or ()
    for table, names in keyed.items():
        for name in names:
            yield table, (*table, name), name.partition("/")[0] if table[0] == "fair_share" else name
    for hours, weighed in config.hours.items():
        for name in weighed.weights:
            yield ("hours", hours), ("hours", hours, "weights", name), name.partition("/")[0]
    for organisation, projects in fair.organisations.items():
        for index, project in enumerate(projects):
            table = ("fair_share", "organisations")
            yield table, (*table, organisation, index), project
    for name, declared in config.projects.items():
        if declared.organisation is not None:
            yield ("projects",), ("projects", name, "organisation"), declared.organisation
    for kind, sections in (("queues", config.queues), ("profiles", config.profiles)):
        for name, section in sections.items():
            for index, project in enumerate(section.projects):
                table = (kind, name, "projects")
                yield table, (*table, index), project
    for name, queue in config.queues.items():
        if queue.default_project is not None:
            yield ("queues", name, "projects"), ("queues", name, "default_project"), queue.default_project


def _quota_names(config: Config) -> dict[str, Any]:
    """Return the tables "users", "projects" and "queues" of [quota], each with the quotas by name. Return an
    empty dict if the quota provider is not "local", because the options of other providers may have another
    form.
    """
    return config.quota.options if config.quota.provider == "local" else {}


def unknown_queues(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each quota and each table [access.limits.queues.NAME] of a queue that does not
    exist.
    """
    known = {*config.queues, DEFAULT_QUEUE}
    tables: Mapping[Table, Iterable[str]] = {
        ("quota", "queues"): _quota_names(config).get("queues") or (),
        ("access", "limits", "queues"): config.access.limits.queues,
        **{
            ("hours", name, "quota", "queues"): each.quota.get("queues") or ()
            for name, each in config.hours.items()
        },
    }
    for table, names in tables.items():
        for name in names if config.queues else ():
            if name not in known and name != ANY_NAME:
                message = f"there is no queue {printable(name)!r}, so this table has no effect"
                yield problem_at(config.source, (*table, name), message, nearest(name, known))


def labels_without_nodes(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each queue and each scheduler profile whose conditions on node labels are not met
    by any node of scheduler.toml.
    """
    labels = [{**node.labels, "node": name} for name, node in config.nodes.items()]
    conditions: dict[Key, tuple[Term, ...]] = {
        ("profiles", name): profile.terms for name, profile in config.profiles.items()
    }
    for name, queue in config.queues.items():
        select = queue.select.items()
        conditions["queues", name, "select"] = tuple(
            Term(key, Operator.IN, (value,)) for key, value in select
        )
    for key, terms in conditions.items():
        if labels and not any(all(term.matches(each) for term in terms) for each in labels):
            wanted = " and ".join(f"'{term}'" for term in terms)
            message = f"no node of this file meets {wanted}, so its jobs cannot start"
            yield problem_at(config.source, key, message, "Correct it, or label a node.")
