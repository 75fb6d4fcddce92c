"""Makes the engine types of the tables [engines.NAME], with their options."""

from __future__ import annotations

from typing import Any

from controller.config import Config, ConfigProblem, ConfigRefused, Key
from controller.config.tables.engines import EngineSection
from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.plugins.quotas.from_engine import EngineQuotas
from controller.registry.plugin_classes import make_plugin
from wire.job.placement.affinity import Effect, Taint
from wire.names import ENGINE_LABEL


def engine_types(config: Config) -> dict[str, Any]:
    """Return the engine type of each table [engines.NAME]: a frozen dataclass with the method `connect`.
    Raise ConfigRefused with all problems.
    """
    found: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for name, section in config.engines.items():
        key: Key = ("engines", name)
        try:
            found[name] = make_plugin(
                "engine", section.type, section.options, key, config.source, config.plugin_files
            )
        except ConfigRefused as refused:
            problems += refused.problems
    if problems:
        raise ConfigRefused(problems)
    return found


def pool_nodes(config: Config) -> tuple[HypotheticalNodes, ...]:
    """Return the nodes that the machine pools of the configuration could start. Tables with problems are left
    out.
    """
    try:
        types = engine_types(config)
    except ConfigRefused:
        return ()
    found = []
    for name, made in types.items():
        section = config.engines[name]
        for offer in made.configured_offers() if hasattr(made, "configured_offers") else ():
            labels = {**offer.facts.labels, **engine_labels(name, section)}
            most = min(made.most, offer.most)
            found.append(
                HypotheticalNodes(offer.facts, labels, engine_taints(name, section), offer.ready_in_s, most)
            )
    return tuple(found)


def engine_labels(engine: str, section: EngineSection) -> dict[str, str]:
    """Return the labels of all nodes of an engine."""
    return {**section.labels, ENGINE_LABEL: engine}


def engine_taints(engine: str, section: EngineSection) -> tuple[Taint, ...]:
    """Return the taints of all nodes of an engine."""
    return (Taint(ENGINE_LABEL, Effect.NO_SCHEDULE, engine),) if section.only_on_request else ()


def quota_source(config: Config) -> EngineQuotas | None:
    """Return the quota provider if it takes the limits of projects from an execution engine, and None
    otherwise.
    """
    section = config.quota
    provider = make_plugin(
        "quota", section.provider, section.options, ("quota",), config.source, config.plugin_files
    )
    return provider if isinstance(provider, EngineQuotas) and provider.foreign_names else None


def engine_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems in the tables [engines.NAME]."""
    try:
        engine_types(config)
    except ConfigRefused as refused:
        return [*refused.problems]
    return []
