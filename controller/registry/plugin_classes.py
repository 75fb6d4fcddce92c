"""Finds plugins by Python entry point or in plugin files, and creates plugins with their options."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.config import (
    Config,
    ConfigProblem,
    ConfigRefused,
    Key,
    Source,
    names_beside,
    nearest,
    problem_at,
    problem_of,
)
from controller.registry.plugin_files import FilePlugin, PluginFileError, plugins_in

METHODS = {
    "filter": ("keep", "concerns", "explain"),
    "scorer": ("score",),
    "order": ("rank",),
    "backfill": ("candidate_key",),
    "picker": ("pick",),
    "quota": ("quota", "names"),
    "preemption": ("standing", "reach"),
    "metrics": ("collect",),
    "hook": ("on_placed",),
    "engine": ("connect",),
    "identity": ("connect",),
}
"""The methods that a plugin of each kind must have. The entry-point group of a kind is `corral.<kind>`."""

ALSO = {"picker": ("corral.placement",)}
"""Additional entry-point groups in which plugins of a kind are found."""


def check_plugin_files(config: Config) -> list[ConfigProblem]:
    problems = []
    for index, path in enumerate(config.plugin_files):
        try:
            plugins_in(path, tuple(METHODS.items()))
        except PluginFileError as error:
            key: Key = ("plugins", "files", index)
            problems.append(problem_at(config.source, key, f"{path} {error}", "See examples/cheap_power.py."))
    return problems


def known_plugins(kind: str, files: Sequence[Path]) -> dict[str, Sequence[EntryPoint | FilePlugin]]:
    """Return all plugins of a kind (such as "filter") by name: installed plugins, and plugins in the plugin
    files.
    """
    found: dict[str, Sequence[EntryPoint | FilePlugin]] = {**installed_plugins(kind)}
    for path in files:
        # Skip a file with an error, because check_plugin_files reports the error.
        with suppress(PluginFileError):
            for each in plugins_in(path, tuple(METHODS.items()))[kind]:
                found[each.name] = [*found.get(each.name, ()), each]
    return found


def make_plugin(
    kind: str,
    name: str,
    options: Mapping[str, Any],
    key: Key,
    source: Source,
    files: Sequence[Path] = (),
) -> Any:
    """Return a new plugin with these options. Raise ConfigRefused if the plugin cannot be created. `key` is
    the path of the plugin's key in scheduler.toml, for messages.
    """

    def refuse(message: str, hint: str = "") -> ConfigRefused:
        return ConfigRefused([problem_at(source, key, message, hint)])

    there = known_plugins(kind, files)
    points = there.get(name)
    if points is None:
        missing = "" if there else "No plugin of this kind is installed: install Corral again."
        raise refuse(f"there is no {kind} {name!r}", missing or nearest(name, there))
    if len(points) > 1:
        places = " and ".join(point.value for point in points)
        raise refuse(
            f"two plugins provide the {kind} {name!r}: {places}", "Remove one, or give it another name."
        )
    loaded = load_plugin(points[0], METHODS[kind])
    if isinstance(loaded, str):
        raise refuse(f"the {kind} {name!r} of {points[0].value} {loaded}")
    try:
        # Pass the options to pydantic as JSON, because pydantic then accepts a list for a tuple, and a string
        # for an enum.
        given = json.dumps(options, default=str)
        plugin: Any = loaded  # because mypy does not know that a class is hashable
        return _reader_of(plugin).validate_json(given, strict=True, extra="forbid")
    except ValidationError as error:
        found = [
            problem_of(source, key, each, names_beside(loaded, each["loc"]))
            for each in error.errors(include_url=False)
        ]
        raise ConfigRefused(found) from None
    except Exception as error:
        raise refuse(f"the {kind} {name!r} cannot be created ({type(error).__name__}: {error})") from None


@functools.lru_cache(maxsize=256)
def _reader_of(plugin: type[Any]) -> TypeAdapter[Any]:
    """Return the pydantic adapter that reads the options of this plugin class. The adapter is cached, because
    it takes 0.4 ms to build.
    """
    return TypeAdapter(plugin)


def load_plugin(point: EntryPoint | FilePlugin, methods: tuple[str, ...]) -> type[Any] | str:
    """Return the class of a plugin, or a text with the reason why the plugin cannot be used."""
    try:
        loaded = point.load()
    # Catch every exception, because the plugin is code of a site and may raise any.
    except Exception as error:
        return f"cannot be loaded ({type(error).__name__}: {error})"
    if not isinstance(loaded, type) or not dataclasses.is_dataclass(loaded):
        return "is not a dataclass"
    kind: Any = loaded
    if not kind.__dataclass_params__.frozen:
        return "is not frozen: a plugin must not change between two decisions"
    if not isinstance(getattr(kind, "name", None), str):
        return "has no `name: ClassVar[str]`"
    missing = [method for method in methods if not callable(getattr(kind, method, None))]
    return f"has no method {missing[0]!r}" if missing else loaded


@functools.cache
def installed_plugins(kind: str) -> dict[str, list[EntryPoint]]:
    """Return the installed plugins of a kind, by name. If several plugins have the same name, the list of
    this name contains all these plugins, and make_plugin refuses the name.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for group in (f"corral.{kind}", *ALSO.get(kind, ())):
        for point in entry_points(group=group):
            # If a package is on the Python path twice, count its plugins only once.
            found.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in found.items()}
