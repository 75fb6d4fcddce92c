"""CSV rows for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cli.output.csv_rows import headings, values


@dataclass(frozen=True)
class _Part:
    name: str


@dataclass(frozen=True)
class _Row:
    text: str
    parts: tuple[_Part, ...]


def test_long_values_are_complete() -> None:
    """A list of objects is JSON, which no program can read if its end is missing."""
    row = _Row("x" * 10_000, tuple(_Part(f"gpu{index}") for index in range(1_000)))
    text, parts = values(_Row, row)
    assert headings(_Row) == ["text", "parts"]
    assert text == row.text
    assert [part["name"] for part in json.loads(parts)] == [part.name for part in row.parts]
