"""Mistakes in a configuration: a message, the file and line of the mistake, and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from controller.config.key_positions import Key
from wire.text import printable


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in a configuration. `origin` says where the mistake is: `file:line`, the name of the file,
    or the name of an environment variable.
    """

    message: str
    key: str = ""
    origin: str = ""
    hint: str = ""
    line: int | None = None
    path: Key = ()
    """The parts of the key, such as ("api", "listen")."""

    def __str__(self) -> str:
        sentence = ": ".join(part for part in (self.origin, self.key, self.message) if part)
        return printable(f"{sentence}. {self.hint}" if self.hint else sentence, 1_000)


class ConfigRefused(Exception):
    """Raised when the configuration has mistakes. Nothing was started or changed."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for the invalid name `name`: the most similar name of `known`, as in `Did you mean
    'fit'?`.

    If no name is similar, the hint lists all names of `known`. The result is "" if `known` is empty.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There are: {', '.join(names)}." if names else ""


def names_beside(kind: Any, path: Sequence[int | str]) -> list[str]:
    """Return the valid names for the last part of the key `path`. `kind` is the class of the table that
    contains the first part. The list is empty if every name is valid."""
    for part in path[:-1]:
        types = _field_types(kind)
        kind = types[str(part)] if str(part) in types else next(iter(get_args(kind)[-1:]), None)
    return [*_field_types(kind)]


def _field_types(kind: Any) -> Mapping[str, Any]:
    """Return the names and types of the fields of a dataclass or pydantic model; empty for any other type. A
    union, such as `Budget | None`, has the fields of all its members.
    """
    if isinstance(kind, UnionType):
        return {name: each for member in get_args(kind) for name, each in _field_types(member).items()}
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return {each.name: types[each.name] for each in fields(kind)}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    return {}
