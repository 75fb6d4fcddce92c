"""Finds the line of each key in a TOML file, because tomllib does not report lines."""

from __future__ import annotations

import os
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = tuple[str | int, ...]

PREFIX = "CORRAL_"
DELIMITER = "__"

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")


@dataclass(frozen=True, slots=True)
class Source:
    """The name and text of a configuration file, and the line of each of its keys."""

    name: str = field(default="", compare=False)
    lines: dict[Key, int] = field(default_factory=dict, compare=False)
    text: str = field(default="", compare=False)

    def line(self, key: Key) -> int | None:
        """Return the line of the key. If the file lacks the key, return the line of the innermost table that
        would contain the key. Return None without such a table.
        """
        for length in range(len(key), 0, -1):
            if key[:length] in self.lines:
                return self.lines[key[:length]]
        return None

    def origin(self, key: Key) -> str:
        """Return where the key is set: the name of the environment variable that sets the key, or `file:line`
        if no variable does. If the line is not known, return the name of the file.
        """
        variable = variable_of(key)
        if variable:
            return variable
        line = self.line(key)
        return f"{self.name}:{line}" if self.name and line else self.name


def variable_of(key: Key) -> str:
    """Return the name of the environment variable that sets this key, or a table around this key; empty if no
    variable does.
    """
    present = {name.upper(): name for name in os.environ if name.upper().startswith(PREFIX)}
    for length in range(len(key), 0, -1):
        name = PREFIX + DELIMITER.join(map(str, key[:length])).upper()
        if name in present:
            return present[name]
    return ""


def locate(text: str) -> dict[Key, int]:
    """Return the line of every key and array element. tomllib must already have accepted the text."""
    lines: dict[Key, int] = {}
    for key, offset in _Scanner(text).walk():
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], offset)
    starts = [match.end() for match in re.finditer("\n", text)]
    return {key: bisect_right(starts, offset) + 1 for key, offset in lines.items()}


class _Scanner:
    """Reads a TOML text once and records the line of each key. The class does not check the text, because
    tomllib has already accepted the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def walk(self) -> Iterator[tuple[Key, int]]:
        table: Key = ()
        counts: dict[Key, int] = {}
        while self._skip():
            start = self.at
            if self.text.startswith("[[", start):
                self.at += 2
                *above, last = self._key()
                array = (*self._inside(tuple(above), counts), last)
                counts[array] = counts.get(array, -1) + 1
                table = (*array, counts[array])
                self.at = self.text.index("]]", self.at) + 2
                yield table, start
            elif self.text.startswith("[", start):
                self.at += 1
                table = self._inside(self._key(), counts)
                self.at = self.text.index("]", self.at) + 1
                yield table, start
            else:
                yield from self._pair(table)

    def _inside(self, key: Key, counts: dict[Key, int]) -> Key:
        """Return the full key of a table, with array indices. For example, `[a.b]` after `[[a]]` is a table
        in the last element of the array `a`. `counts` contains, for each array, the index of its last element
        that was read.
        """
        full: Key = ()
        for part in key:
            full = (*full, part)
            if full in counts:
                full = (*full, counts[full])
        return full

    def _skip(self) -> bool:
        self.at = self._match(_BLANK).end()
        return self.at < len(self.text)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"not TOML at offset {self.at}")
        return match

    def _key(self) -> Key:
        parts: list[str] = []
        while True:
            self._skip()
            quoted = self.text[self.at] in "\"'"
            match = self._match(_STRING if quoted else _BARE)
            parts.append(tomllib.loads(f"key = {match[0]}")["key"] if quoted else match[0])
            self.at = match.end()
            self._skip()
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def _pair(self, table: Key) -> Iterator[tuple[Key, int]]:
        start = self.at
        key = (*table, *self._key())
        yield key, start
        self.at += 1  # Skip the equals sign.
        yield from self._value(key)

    def _value(self, key: Key) -> Iterator[tuple[Key, int]]:
        self._skip()
        first = self.text[self.at]
        if first == "[":
            yield from self._array(key)
        elif first == "{":
            yield from self._inline(key)
        else:
            self.at = self._match(_STRING if first in "\"'" else _SCALAR).end()

    def _array(self, key: Key) -> Iterator[tuple[Key, int]]:
        self.at += 1
        index = 0
        while self._skip() and self.text[self.at] != "]":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            element = (*key, index)
            yield element, self.at
            yield from self._value(element)
            index += 1
        self.at += 1

    def _inline(self, key: Key) -> Iterator[tuple[Key, int]]:
        self.at += 1
        while self._skip() and self.text[self.at] != "}":
            if self.text[self.at] == ",":
                self.at += 1
                continue
            yield from self._pair(key)
        self.at += 1
