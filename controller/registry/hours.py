"""Makes the timetable of the tables [hours.NAME]. Also finds mistakes and keys without effect in these
tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.config import Config, ConfigProblem, ConfigRefused, Key, problem_at
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.hours.timetable import HoursTable, Timetable
from controller.core.quota.usage_counters import TenantKey
from controller.registry.plugin_classes import make_plugin
from controller.registry.queues import week_hours_of
from wire.cluster.quota import ANY_NAME, SCOPES, Quota


def timetable_of(config: Config) -> Timetable:
    """Return the timetable of the tables [hours.NAME]. Raise ConfigRefused with all mistakes in their
    quotas."""
    zone, tables, problems = config.scheduler.time_zone, [], list[ConfigProblem]()
    for name, each in config.hours.items():
        try:
            quotas = _quotas(config, name, each.quota)
        except ConfigRefused as refused:
            problems.extend(refused.problems)
            continue
        tables.append(HoursTable(name, week_hours_of(each.hours, zone), quotas, each.weights))
    if problems:
        raise ConfigRefused(problems)
    return Timetable(tuple(tables))


def _quotas(config: Config, name: str, tables: Mapping[str, Any]) -> dict[TenantKey, Quota]:
    key: Key = ("hours", name, "quota")
    found = make_plugin("quota", "local", tables, key, config.source, config.plugin_files)
    return {
        (scope, tenant): quota
        for scope in SCOPES
        for tenant in (ANY_NAME, *found.names(scope))
        if (quota := found.quota(scope, tenant)) is not None
    }


def dead_hours(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each table [hours.NAME] that changes nothing. Either the table sets no quota and no
    weight, or one earlier table is in force in all its hours, sets the same quotas, and sets the weights of
    the same tenants.
    """
    timetable = timetable_of(config)
    for place, each in enumerate(timetable.tables):
        key: Key = ("hours", each.name)
        own = {*each.quotas, *each.weights}
        if not own:
            message = "has no effect, because it sets no quota and no weight"
            yield problem_at(config.source, key, message, f"Write [hours.{each.name}.quota.projects.NAME].")
            continue
        for other in timetable.tables[:place]:
            together = [tables for tables in timetable.combinations() if each in tables]
            same_quotas = all(other.quotas.get(name) == quota for name, quota in each.quotas.items())
            covered = all(other in tables for tables in together)
            if covered and same_quotas and {*each.weights} <= {*other.weights}:
                message = f"has no effect, because [hours.{other.name}] comes first and sets the same keys"
                yield problem_at(config.source, key, message)
                break


def hours_sentences(config: Config) -> tuple[str, ...]:
    """Return a sentence for each table [hours.NAME]: the hours in which it is in force, and the tenants whose
    limits and weights it replaces.
    """
    sentences = []
    for each in timetable_of(config).tables:
        parts = [f"quota of {scope} {name}" for scope, name in each.quotas]
        parts += [f"weight {weight:g} of {share}" for share, weight in each.weights.items()]
        sentences.append(f"{each.name}, {each.hours}: {', '.join(parts) or 'nothing'}")
    return tuple(sentences)
