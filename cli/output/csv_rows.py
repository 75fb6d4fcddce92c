"""Writes rows as CSV for programs: the columns are fields of the API, numbers are not rounded, times are in
ISO 8601 with time zone.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from wire.codec import encode
from wire.text import printable

_TIMES = ("at", "since", "until", "was", "becomes", "again")
"""Names of fields with a time in seconds since 1970. Fields whose names end in `_at` or `_since` contain such
times, too.
"""

Getter = Callable[[Any], Any]


def headings(kind: type[Any]) -> list[str]:
    """Return the column headings for a dataclass of the API: the names of its fields. A heading such as
    `held.gpus` is the field `gpus` of the object in the field `held`.
    """
    return [name for name, _ in getters(kind)]


def values(kind: type[Any], row: Any) -> list[str]:
    return [_text(name.rpartition(".")[2], get(row)) for name, get in getters(kind)]


def getters(kind: type[Any], above: str = "", get: Getter = lambda row: row) -> Iterator[tuple[str, Getter]]:
    """Yield for each column its heading, and the function that returns the column's value for a row."""
    hints = typing.get_type_hints(kind)
    for each in dataclasses.fields(kind):
        inner = _without_none(hints[each.name])
        value = _reader(get, each.name)
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            yield from getters(inner, f"{above}{each.name}.", value)
        else:
            yield f"{above}{each.name}", value


def _reader(get: Getter, name: str) -> Getter:
    def value(row: Any) -> Any:
        whole = get(row)
        return None if whole is None else getattr(whole, name)

    return value


def _without_none(hint: Any) -> Any:
    arguments = [each for each in typing.get_args(hint) if each is not type(None)]
    optional = type(None) in typing.get_args(hint) and len(arguments) == 1
    return arguments[0] if optional else hint


def _text(name: str, value: Any) -> str:
    """Return the value of the field `name` as text: times in ISO 8601, other numbers unrounded, booleans as
    true and false, lists and mappings of simple values joined by ';', other values as JSON. None is empty.
    """
    if value is None:
        return ""
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        timely = name in _TIMES or name.endswith(("_at", "_since"))
        return moment(value) if timely and value > 0 else f"{value!r}"
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, Mapping) and all(_is_plain(each) for each in value.values()):
        return _whole(";".join(f"{key}={_text('', each)}" for key, each in value.items()))
    if isinstance(value, tuple | list) and all(_is_plain(each) for each in value):
        return _whole(";".join(_text(name, each) for each in value))
    parts = [encode(each) for each in value] if isinstance(value, tuple | list) else encode(value)
    return _whole(json.dumps(parts, separators=(",", ":")))


def _whole(text: str) -> str:
    """Return the text on one line without control characters. The text is not shortened, because a program
    cannot read half a JSON value.
    """
    return printable(text, len(text))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, enum.Enum | bool | int | float | str)


def moment(at: float) -> str:
    """Return a time in seconds since 1970 as text such as 2026-11-19T04:47:58.250Z."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
