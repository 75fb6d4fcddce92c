"""The parts of a form as plain data: fields, parsing of the typed text, request and shell command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wire.api.forecasts import WhatIf
from wire.http.client import Client

Wish = TypeVar("Wish")
Answer = TypeVar("Answer")
Typed = Mapping[str, str]
"""The typed text by field name."""


@dataclass(frozen=True)
class Field:
    """One field. `target` is its name in the API, `flag` the option of the command.

    Fields of one `row` are side by side, under the heads of the form.
    """

    name: str
    target: str
    flag: str
    hint: str
    read: Callable[[str], Any]
    default: str = ""
    row: str = ""


@dataclass(frozen=True)
class FormContents(Generic[Wish]):
    """The parsed form: its request (None: incomplete), and errors by field."""

    wish: Wish | None
    wrong: Mapping[str, str]

    @property
    def ready(self) -> bool:
        """Whether the form can be sent."""
        return self.wish is not None and not self.wrong


@dataclass(frozen=True)
class Form(Generic[Wish, Answer]):
    """A form; `trial` gives the what-if question about it."""

    title: str
    button: str
    fields: tuple[Field, ...]
    read: Callable[[Typed], FormContents[Wish]]
    command: Callable[[Typed], str]
    send: Callable[[Client, Wish], Answer]
    trial: Callable[[Wish], WhatIf | None] | None = None
    heads: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, list[Field]]:
        """The fields by line."""
        found: dict[str, list[Field]] = {}
        for field in self.fields:
            found.setdefault(field.row or field.name, []).append(field)
        return found

    def name_of(self, where: str) -> str:
        """The field of this API name; empty if there is none."""
        for part in (where, where.partition(".")[2], where.partition(".")[0]):
            for field in self.fields:
                if part and field.target == part.partition("[")[0]:
                    return field.name
        return ""


def changed(fields: Iterable[Field], typed: Typed) -> dict[Field, str]:
    """The fields whose text differs from the initial text; an emptied field means none."""
    found = {field: typed.get(field.name, field.default).strip() for field in fields}
    return {field: text or "none" for field, text in found.items() if text != field.default}


def number(text: str, hint: str) -> float:
    """A number; raises ValueError with the hint."""
    if not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text):
        raise ValueError(hint)
    return float(text)


def words(text: str) -> tuple[str, ...]:
    """Words, split as by a shell."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(str(error).lower()) from None


def pairs(text: str) -> dict[str, str]:
    """A mapping from NAME=value OTHER=value."""
    found = {}
    for word in words(text):
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError("write name=value, separated by spaces")
        found[name] = value
    return found


_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE)


def span(text: str) -> float:
    """Seconds of 1d2h30m."""
    match = _SPAN.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError("write 90s, 30m or 2h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT])(?:i?B)?", re.IGNORECASE)
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


def memory_mib(text: str) -> int:
    """MiB of 512M, 16G or 1T."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError("write 512M, 16G or 1T")
    return int(float(match[1]) * _MIB[match[2].upper()])


def cores_milli(text: str) -> int:
    """CPU-milli of a number of cores such as 4 or 0.5."""
    return round(number(text, "write 4 or 0.5") * 1000)


def count(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise ValueError("write a whole number")
    return int(text)
