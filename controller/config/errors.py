"""The mistakes that can be found in a configuration. Each has a position and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from controller.config.key_positions import Key
from wire.text import printable


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in a configuration. `origin` is its position: `file:line`, the file, or an environment
    variable.
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
    """Return a hint with the most similar valid name, such as `Did you mean 'fit'?`. If none is similar, list
    all valid names; "" if `known` is empty.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There are: {', '.join(names)}." if names else ""


def names_beside(kind: Any, path: Sequence[int | str]) -> list[str]:
    """Return the names that are valid as the last part of `path`, a key in a table of the class `kind`. Empty
    if every name is allowed there.
    """
    for part in path[:-1]:
        types = _field_types(kind)
        kind = types[str(part)] if str(part) in types else next(iter(get_args(kind)[-1:]), None)
    return [*_field_types(kind)]


def _field_types(kind: Any) -> Mapping[str, Any]:
    """Return the names and types of the fields of a dataclass or pydantic model; empty for any other type."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return {each.name: types[each.name] for each in fields(kind)}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: each.annotation for name, each in kind.model_fields.items()}
    return {}
