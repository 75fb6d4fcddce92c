"""Compares two configurations key by key, and finds the changed keys that only a restart of the controller
can apply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from controller.config.config import Config
from controller.config.key_positions import Key
from controller.config.load import dotted, render
from wire.api.service.config import ConfigChange

DECIDING = (
    "access",
    "projects",
    "budgets",
    "scheduler",
    "backfill",
    "topology",
    "datasets",
    "overcommit",
    "queues",
    "quota",
    "hours",
    "licences",
    "preemption",
    "rebalance",
    "fair_share",
    "gpus",
    "jobs",
    "profiles",
    "plugins",
    "services",
)
"""The tables of scheduler.toml that decide which jobs are accepted, and when and where they start."""

NEEDS_RESTART: tuple[Key, ...] = (
    ("controller", "state_dir"),
    ("controller", "socket"),
    ("controller", "keep_ended"),
    ("store",),
    ("api",),
    ("plugins", "files"),
)
"""Keys that the controller reads only at its start: files, sockets, buffers and plugin code."""

SECRET: tuple[Key, ...] = (
    ("store", "url"),
    ("plugins", "hooks"),
    ("plugins", "metrics"),
    ("services", "*", "environment"),
    ("notify", "sinks", "*", "url"),
)
"""Keys whose values may contain a password: a database URL, the options of a plugin that connects to a
service, the environment of a service, or the URL of a sink of notifications. "*" stands for any name.
"""

NAMED = ("nodes", "queues", "hours", "profiles", "projects", "services", "engines")
"""Tables that contain named tables, such as [nodes.gpu01]. A named table that is added or removed is shown as
one change, and not as a change of each of its keys.
"""

HIDDEN = "(not shown)"
_LONGEST = 500


def differences(old: Config, new: Config) -> tuple[ConfigChange, ...]:
    """Return all keys whose values differ, in the order of the tables."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    return tuple(_change(*each) for each in _differing(before, after))


def _differing(before: Any, after: Any, key: Key = ()) -> Iterator[tuple[Key, Any, Any]]:
    if before == after:
        return
    tables = isinstance(before, Mapping) and isinstance(after, Mapping)
    if not tables:
        yield key, before, after
        return
    for name in dict.fromkeys([*before, *after]):
        yield from _differing(before.get(name), after.get(name), (*key, name))


def _change(key: Key, before: Any, after: Any) -> ConfigChange:
    fixed = any(key[: len(each)] == each for each in NEEDS_RESTART)
    shown = [None if each is None else shown_value(key, each) for each in (before, after)]
    return ConfigChange(dotted(key), shown[0], shown[1], not fixed)


def shown_value(key: Key, value: Any, longest: int | None = _LONGEST) -> str:
    """Return the value of `key` as JSON, cut to `longest` characters (None: not cut). Return HIDDEN if the
    value is secret or contains a secret.
    """
    whole = (key[0] == "services" and len(key) < 3) or (key[:2] == ("notify", "sinks") and len(key) < 4)
    secret = whole or any(map(partial(_is_below, key), SECRET))
    return HIDDEN if secret else _shown(value)[:longest]


def _is_below(key: Key, secret: Key) -> bool:
    """Return whether `key` equals `secret` or belongs to the table `secret`. `*` in `secret` stands for any
    name."""
    return len(key) >= len(secret) and all(
        wanted in ("*", part) for part, wanted in zip(key, secret, strict=False)
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {name: each for name, each in value.items() if each not in (None, "", [], {})}
    return json.dumps(value, ensure_ascii=False)


def in_effect(running: Config, new: Config) -> Config:
    """Return the configuration that is in effect after `new` is applied without a restart.

    The result equals `new`, except for keys that only a restart can change: these keys have their values from
    `running`.
    """
    kept: dict[str, Any] = {}
    for table, *rest in NEEDS_RESTART:
        name = str(table)
        section = kept.get(name, getattr(new, name))
        if rest:
            field = str(rest[0])
            section = section.model_copy(update={field: getattr(getattr(running, name), field)})
        else:
            section = getattr(running, name)
        kept[name] = section
    made = new.model_copy(update=kept)
    made._source = new.source
    return made


def digest(config: Config) -> str:
    """Return a short hash of all values of the configuration."""
    return hashlib.sha256(render(config).encode()).hexdigest()[:12]


def policy_text(config: Config) -> str:
    """Return the tables that affect scheduling decisions, as JSON for the journal. Hook and metrics plugins
    are left out.
    """
    tables = config.model_dump(mode="json", include=set(DECIDING), exclude_none=True)
    for name in ("hooks", "metrics"):
        tables["plugins"].pop(name, None)
    return json.dumps(tables, ensure_ascii=False, separators=(",", ":"))


def policy_config(text: str) -> Config:
    """Return the configuration from a text that policy_text() has made. Tables that the text does not contain
    get their default values."""
    return Config(**json.loads(text))
