"""Reads the tour in docs/tui.md: the keys of each row, and the words that the screen then shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "tui.md"
HEADING = "## A tour in five minutes"


@dataclass(frozen=True)
class Step:
    """One row of the table. A key is a character, a name such as Enter, or a word to type."""

    keys: tuple[str, ...]
    signs: tuple[str, ...]
    text: str


def steps() -> list[Step]:
    """The rows of the table: keys are between backticks, words of the screen between asterisks."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("|")][2:]
    return [
        Step(
            tuple(re.findall(r"`([^`]+)`", keys)),
            tuple(re.findall(r"\*\*(.+?)\*\*", text)),
            re.sub(r"[*`]", "", text).strip(),
        )
        for keys, text in rows
    ]
