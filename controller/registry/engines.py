"""Makes the engine types of the tables [engines.NAME], with their options."""

from __future__ import annotations

from typing import Any

from controller.config import Config, ConfigProblem, ConfigRefused, Key
from controller.registry.plugin_classes import make_plugin


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


def engine_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems in the tables [engines.NAME]."""
    try:
        engine_types(config)
    except ConfigRefused as refused:
        return [*refused.problems]
    return []
