"""Lists every key of the configuration in effect, with its value and the place where it was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.config.config import Config
from controller.config.differences import differences, shown_value
from controller.config.errors import ConfigRefused
from controller.config.key_positions import Key, variable_of
from controller.config.load import dotted, load_text
from wire.api.service.config import DEFAULT_SOURCE, ConfigSetting


def settings(config: Config) -> tuple[ConfigSetting, ...]:
    """Return all keys that have a value, each with its value and the place where it is set, in the order of
    the tables. Secrets are not shown.
    """
    waiting = _after_restart(config)
    return tuple(
        ConfigSetting(
            dotted(key), shown_value(key, value, None), _source(config, key), waiting.get(dotted(key))
        )
        for key, value in _leaves(config.model_dump(mode="json", exclude_none=True))
    )


def _leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, Mapping) and (value or not key):
        for name, each in value.items():
            yield from _leaves(each, (*key, name))
    else:
        yield key, value


def _source(config: Config, key: Key) -> str:
    """Return the place where the key was set: an environment variable, a line of the file, or "default"."""
    variable = variable_of(key)
    if variable:
        return variable
    line = config.source.lines.get(key)
    return DEFAULT_SOURCE if line is None else f"{config.source.name}:{line}"


def _after_restart(config: Config) -> dict[str, str | None]:
    """Return the keys whose values in the file come into effect only after a restart of the controller, each
    with its value in the file.
    """
    if not config.source.text:
        return {}
    try:
        read = load_text(config.source.text, config.source.name)
    except ConfigRefused:
        return {}
    return {each.key: each.after for each in differences(config, read) if not each.live}
