"""Encodes dataclasses as JSON, and decodes JSON to dataclasses. Unknown names and wrong types raise
Malformed.

Algorithm
1. `encoder(kind)` and `decoder(kind)` derive the functions that convert a type from its type hints: scalars,
   enums, Optional, tuples, lists, mappings and dataclasses of these. The functions of a type are derived on
   its first use, and cached.
2. The encoder of a dataclass is a generated lambda, `{"id": value.id, "state": _state(value.state)}`,
   compiled with eval. It makes no call for a field whose JSON form is the value itself.
3. The decoder of a dataclass is a generated function, compiled with exec. It has one type check for each
   field, and calls another decoder only for a value that fails the check (see `_dataclass_decoder`).

The code is generated because every frame (message of an agent), journal entry and API body is converted here,
and a loop over the fields would cost several calls for each field. The generated text has only field names
and fixed words, never data, so data from the network cannot become code. Cost: proportional to the size of
the value; one compilation for each class and process.

Example: for `Held(node: str, cpu_milli: int)` the decoder is
    def read(data, where):
        if type(data) is not dict or len(data) != 2: return by_name(data, where)
        try: v0 = data["node"]; v1 = data["cpu_milli"]; ...
        except (KeyError, Malformed): return by_name(data, where)
        return kind(v0, v1)
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from typing import Any, Callable, TypeVar, Union

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
Encoder = Callable[[Any], Any]
_UNION_TYPES = (Union, getattr(types, "UnionType", Union))


class Malformed(ValueError):
    """Raised for data that does not match the type. `where` is the path of the wrong value, such as
    `facts.gpus[0]`.
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where
        self.message = message


dumps: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Return data as JSON text, without spaces. Journal entries, messages and API bodies are written with this
function.
"""


def encode(value: Any) -> Any:
    """Return a dataclass instance as plain JSON data: dicts, lists and scalars."""
    kind: Any = type(value)
    return encoder(kind)(value)


def encode_once(value: Any) -> Any:
    """Return the same as `encode`, but compile no encoder. This is faster in a program that encodes only one
    value of this type: to compile the encoder of a JobSpec takes 2 ms, this function takes 40 us.
    """
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [encode_once(part) for part in value]
    if isinstance(value, dict):
        return {key: encode_once(part) for key, part in value.items()}
    return {each.name: encode_once(getattr(value, each.name)) for each in dataclasses.fields(value)}


def decode(cls: type[T], data: Any, where: str = "") -> T:
    """Return an instance of `cls` made from JSON data. Raise Malformed for unknown names and wrong types."""
    kind: Any = cls
    made: T = decoder(kind)(data, where)
    return made


@functools.cache
def encoder(kind: Any) -> Encoder:
    """Return the function that encodes values of this type. It is compiled on first use."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass_encoder(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return lambda value: value.value
    arguments = typing.get_args(kind)
    if origin in _UNION_TYPES:
        inner = encoder(_only_optional(kind))
        return lambda value: None if value is None else inner(value)
    if origin in (tuple, list):
        item = encoder(arguments[0])
        return list if item is _same else lambda value: [item(part) for part in value]
    if origin is not None and len(arguments) == 2:
        item = encoder(arguments[1])
        return dict if item is _same else lambda value: {key: item(part) for key, part in value.items()}
    return _same


def _same(value: Any) -> Any:
    return value


def _dataclass_encoder(kind: type) -> Encoder:
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    parts = {name: encoder(hints[name]) for name in names}
    scope = {f"_{name}": part for name, part in parts.items()}
    body = ", ".join(
        f"{name!r}: value.{name}" if parts[name] is _same else f"{name!r}: _{name}(value.{name})"
        for name in names
    )
    made: Encoder = eval(f"lambda value: {{{body}}}", scope)  # noqa: S307 - field names only
    return made


@functools.cache
def decoder(kind: Any) -> Decoder:
    """Return the function that decodes values of this type. It is compiled on first use."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind is Any:
        return lambda data, _where: data
    if dataclasses.is_dataclass(kind):
        return _dataclass_decoder(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum_decoder(kind)
    if origin in _UNION_TYPES:
        inner = decoder(_only_optional(kind))
        return lambda data, where: None if data is None else inner(data, where)
    if origin in (tuple, list):
        return _sequence_decoder(decoder(arguments[0]), tuple if origin is tuple else list)
    if origin is not None and len(arguments) == 2:
        return _mapping_decoder(decoder(arguments[1]))
    return _scalar_decoder(kind)


def _only_optional(kind: Any) -> Any:
    inner = [part for part in typing.get_args(kind) if part is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"Optional is the only union that can be encoded, not {kind}")
    return inner[0]


def _dataclass_decoder(kind: type) -> Decoder:
    """Return the function that decodes a dataclass. The function is compiled, so that most fields cost one
    comparison.

    1. If the data has exactly the fields of the class, read them in order. A value that already has the right
       type is used unchanged, and an empty list becomes (); other values go to their decoder.
    2. If step 1 fails, read the fields by name: an unknown field raises Malformed, and a missing field gets
       its default, or raises Malformed if it has none.
    """
    hints = typing.get_type_hints(kind)
    fields = {f.name: decoder(hints[f.name]) for f in dataclasses.fields(kind)}
    required = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]

    def read_by_name(data: Any, where: str) -> Any:
        if not isinstance(data, dict):
            raise Malformed(where, f"expected an object, got {_name(data)}")
        prefix = f"{where}." if where else ""
        values = {}
        for key, value in data.items():
            part = fields.get(key)
            if part is None:
                raise Malformed(f"{prefix}{key}", "unknown field")
            values[key] = part(value, f"{prefix}{key}")
        for name in required:
            if name not in values:
                raise Malformed(f"{prefix}{name}", "missing")
        return kind(**values)

    if not fields:
        return read_by_name
    scope: dict[str, Any] = {"by_name": read_by_name, "kind": kind, "Malformed": Malformed}
    lines = ["def read(data, where):", f"    if type(data) is not dict or len(data) != {len(fields)}:"]
    lines += ["        return by_name(data, where)", "    try:"]
    for index, (name, part) in enumerate(fields.items()):
        scope[f"read{index}"] = part
        check, empties = _inline_check(hints[name])
        value = f"v{index}"
        lines.append(f"        {value} = data[{name!r}]")
        lines += [f"        if {value} == {empty}: {value} = {made}" for empty, made in empties]
        condition = f"if not ({check.replace('value', value)}): " if check else ""
        if empties:
            condition = f"el{condition}" if condition else "else: "
        lines.append(f"        {condition}{value} = read{index}({value}, '')")
    made = ", ".join(f"v{index}" for index in range(len(fields)))
    lines += ["    except (KeyError, Malformed):", "        return by_name(data, where)"]
    lines.append(f"    return kind({made})")
    exec("\n".join(lines), scope)  # noqa: S102 - field names only
    compiled: Decoder = scope["read"]
    return compiled


def _inline_check(kind: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return a Python condition, as text, that is true for JSON values that need no decoding. Also return the
    empty JSON values that need no decoder, each with its replacement, such as `[]` and `()`.
    """
    if typing.get_origin(kind) in _UNION_TYPES:
        check, empties = _inline_check(_only_optional(kind))
        return (f"value is None or {check}" if check else "value is None"), empties
    if kind in (str, int, bool):
        return f"type(value) is {kind.__name__}", []
    if kind is float:
        return "type(value) is float or type(value) is int", []
    if typing.get_origin(kind) is tuple:
        return "", [("[]", "()")]
    return "", []


def _enum_decoder(kind: type[enum.Enum]) -> Decoder:
    members = {member.value: member for member in kind}

    def read(data: Any, where: str) -> Any:
        try:
            return members[data]
        except (KeyError, TypeError):
            raise Malformed(where, f"{data!r} is none of {', '.join(map(str, members))}") from None

    return read


def _sequence_decoder(item: Decoder, make: Callable[[list[Any]], Any]) -> Decoder:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, (list, tuple)):
            raise Malformed(where, f"expected a list, got {_name(data)}")
        return make([item(part, f"{where}[{index}]") for index, part in enumerate(data)])

    return read


def _mapping_decoder(item: Decoder) -> Decoder:
    def read(data: Any, where: str) -> Any:
        if not isinstance(data, dict):
            raise Malformed(where, f"expected an object, got {_name(data)}")
        return {key: item(part, f"{where}.{key}") for key, part in data.items()}

    return read


def _scalar_decoder(kind: Any) -> Decoder:
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def read(data: Any, where: str) -> Any:
        if not isinstance(data, accepted) or (isinstance(data, bool) and kind is not bool):
            raise Malformed(where, f"expected {kind.__name__}, got {_name(data)}")
        return data

    return read


def _name(data: Any) -> str:
    return "null" if data is None else type(data).__name__
