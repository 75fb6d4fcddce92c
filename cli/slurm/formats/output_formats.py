"""Reads the formats of -o (fields by letter, such as %i) and -O (fields by name), and prints rows in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wire.text import printable

Row = Mapping[str, Any]

_SPEC = re.compile(r"%(\.?)(\d*)(.)", re.DOTALL)
_NAMED = re.compile(r"([^:]+)(?::(\.?)(\d*)(.*))?", re.DOTALL)
DEFAULT_WIDTH = 20
"""The width of a field of -O without a width."""
WIDEST = 65_536
"""The greatest width of a field. If a user writes a greater width, this width is used."""


def safe(text: str) -> str:
    """Return the text without control and escape characters. Users choose the names of their jobs, and a name
    must neither act on the terminal of another user nor look like a second line.
    """
    return text if text.isprintable() else printable(text, len(text))


def width_of(digits: str) -> int:
    """Return the width for the digits in a format, at most WIDEST; 0 for no digits."""
    return min(int(digits[:9] or 0), WIDEST)


class Field(NamedTuple):
    """One property of an object, such as a job: its letter in -o, its name in -O, its heading, the columns of
    the job table that `value` reads (`columns`), and the function that returns the text of the property. A
    field without a letter cannot be chosen in -o, and a field without a name cannot be chosen in -O.
    """

    letter: str
    name: str
    heading: str
    columns: tuple[str, ...]
    value: Callable[[Row], str]


class Part(NamedTuple):
    """A field in a format: the text before the field (`prefix`), the width of the field (0 means: as wide as
    the value), and whether the value is aligned to the right.
    """

    prefix: str
    field: Field | None
    width: int = 0
    right: bool = False


class Format(NamedTuple):
    """A sequence of fields, with the text before each field, and the text after the last field."""

    parts: tuple[Part, ...]
    suffix: str
    unknown: tuple[str, ...] = ()
    """The letters or names in the format that no field has."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the job table that the fields read, each once."""
        found = [name for part in self.parts if part.field for name in part.field.columns]
        return tuple(dict.fromkeys(found))

    def header(self) -> str:
        return (
            "".join(_sized(part, part.field.heading if part.field else "") for part in self.parts)
            + self.suffix
        )

    def line(self, row: Row) -> str:
        text = ""
        for prefix, field, width, right in self.parts:
            value = safe(field.value(row)) if field is not None else ""
            if width:
                value = value[:width].rjust(width) if right else value[:width].ljust(width)
            text += prefix + value
        return text + self.suffix


def _sized(part: Part, value: str) -> str:
    if part.width:
        value = value[: part.width]
        value = value.rjust(part.width) if part.right else value.ljust(part.width)
    return part.prefix + value


def percent_format(text: str, fields: Iterable[Field]) -> Format:
    """Return the format that a text of -o describes, such as `%.18i %2t|%j`.

    A number before the letter is the width: the value is cut or padded with spaces to this width. With a dot
    before the number, the value is aligned to the right. Other characters, and letters that no field has, are
    printed unchanged. `%all` stands for all fields, with `|` between them.
    """
    known = {field.letter: field for field in fields if field.letter}
    if text.strip().lower() == "%all":
        parts = [Part("|" if place else "", field) for place, field in enumerate(known.values())]
        return Format(tuple(parts), "")
    found: list[Part] = []
    unknown: list[str] = []
    literal = ""
    position = 0
    while (match := _SPEC.search(text, position)) is not None:
        literal += text[position : match.start()]
        position = match.end()
        dot, width, letter = match.groups()
        if letter == "%" and not width:
            # Read `%%i` as `%i`, as Slurm does.
            position -= 1
            continue
        if letter not in known:
            unknown.append(letter)
            literal += match[0]
            continue
        found.append(Part(literal, known[letter], width_of(width), bool(dot)))
        literal = ""
    return Format(tuple(found), literal + text[position:], tuple(unknown))


def named_format(text: str, fields: Iterable[Field]) -> Format:
    """Return the format that a text of -O describes, such as `JobID:.10,State,tres-per-node:100`. Names may
    be in upper or lower case. The number after the colon is the width; text after this number is printed
    after the value.
    """
    known = {field.name.lower(): field for field in fields if field.name}
    parts: list[Part] = []
    unknown: list[str] = []
    suffix = ""
    for word in text.split(","):
        match = _NAMED.fullmatch(word.strip())
        field = known.get(match[1].lower()) if match else None
        if match is None or field is None:
            unknown.append(match[1] if match else word.strip())
            continue
        parts.append(Part(suffix, field, width_of(match[3] or str(DEFAULT_WIDTH)), bool(match[2])))
        suffix = match[4] or ""
    return Format(tuple(parts), suffix, tuple(unknown))


def print_lines(lines: Sequence[str]) -> None:
    """Print the lines with one call of print. Print nothing if there are no lines."""
    if lines:
        print("\n".join(lines))
