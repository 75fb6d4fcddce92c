"""The common parts of all forms: fields, parsing, the request and the shell command. This module uses no
widget.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wire import amounts
from wire.api.forecasts import WhatIf
from wire.http.client import Client

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Typed = Mapping[str, str]
"""The texts that the user typed, by field name."""


@dataclass(frozen=True)
class Field:
    """One field of a form. `target` is the name of the field in the API, and `flag` is the option of the
    shell command that sets this field.

    Fields with the same `row` are on one line. `picks` is the kind of names that the form offers for this
    field, such as "queue" (module tui.data.known_names); empty if the form offers none.
    """

    name: str
    target: str
    flag: str
    hint: str
    read: Callable[[str], Any]
    default: str = ""
    row: str = ""
    picks: str = ""

    @property
    def several(self) -> bool:
        """Return True if the field takes several names, separated by blanks."""
        return self.read is amounts.words

    def flags(self, text: str) -> list[str]:
        """Return the options of the shell command that set the field to this text. If the text has several
        values, each value has its own option.
        """
        if self.read is yes_or_no:
            return [self.flag] if text.lower() == "yes" else []
        try:
            values = amounts.words(text) if self.read in (amounts.words, pairs) else (text,)
        except ValueError:
            values = (text,)
        return [f"{self.flag} {shlex.quote(value)}".strip() for value in values]


@dataclass(frozen=True)
class FormContents(Generic[Request]):
    """The parsed form: the request (None if the form is incomplete), and the errors by field name."""

    request: Request | None
    wrong: Mapping[str, str]

    @property
    def ready(self) -> bool:
        return self.request is not None and not self.wrong


@dataclass(frozen=True)
class Form(Generic[Request, Answer]):
    """A form: its fields, and functions that parse the typed texts, send the request, and return the
    equivalent shell command. `trial` returns the what-if request that shows the effect of the form on other
    jobs; None if the form has no such effect.
    """

    title: str
    button: str
    fields: tuple[Field, ...]
    read: Callable[[Typed], FormContents[Request]]
    command: Callable[[Typed], str]
    send: Callable[[Client, Request], Answer]
    trial: Callable[[Request], WhatIf | None] | None = None
    heads: tuple[str, ...] = ()

    @property
    def rows(self) -> dict[str, list[Field]]:
        """Return the fields of each line of the form, by `row`, or by field name for a field alone on its
        line.
        """
        found: dict[str, list[Field]] = {}
        for field in self.fields:
            found.setdefault(field.row or field.name, []).append(field)
        return found

    def name_of(self, where: str) -> str:
        """Return the name of the form's field that sets the API field `where`; empty if the form has no such
        field.
        """
        for part in (where, where.partition(".")[2], where.partition(".")[0]):
            for field in self.fields:
                if part and field.target == part.partition("[")[0]:
                    return field.name
        return ""


def filled(fields: Iterable[Field], typed: Typed) -> dict[Field, str]:
    """Return the typed texts of all fields, except those that are empty."""
    found = {field: typed.get(field.name, field.default).strip() for field in fields}
    return {field: text for field, text in found.items() if text}


def changed(fields: Iterable[Field], typed: Typed) -> dict[Field, str]:
    """Return the texts of the fields that the user has changed. If the user has deleted the text of a field,
    return "none" for this field.
    """
    found = {field: typed.get(field.name, field.default).strip() for field in fields}
    return {field: text or "none" for field, text in found.items() if text != field.default}


def read_fields(texts: Mapping[Field, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse the texts of fields. Return the values by the names of the API fields, and the errors by the
    names of the form's fields. Errors are short, because the screen shows an error next to its field.
    """
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field, text in texts.items():
        try:
            values[field.target] = field.read(text)
        except ValueError as error:
            # Show only the last part of the error, which names valid values, because the wrong text is
            # visible on the same line.
            wrong[field.name] = str(error).rpartition("; ")[2]
    return values, wrong


def pairs(text: str) -> dict[str, str]:
    """Return a dict from NAME to value for a text such as `NAME=value OTHER=value`. Raise ValueError for any
    other text.
    """
    return dict(map(amounts.pair, amounts.words(text)))


def yes_or_no(text: str) -> bool:
    """Return True for yes and False for no. Raise ValueError for any other text."""
    if text.lower() not in ("yes", "no"):
        raise ValueError("write yes or no")
    return text.lower() == "yes"
