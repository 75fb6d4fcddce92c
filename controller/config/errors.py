"""The problems of a configuration, each with its place and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.config.key_positions import Key
from wire.text import printable


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake. `origin` is `file:line`, the file, or an environment variable."""

    message: str
    key: str = ""
    origin: str = ""
    hint: str = ""
    line: int | None = None
    path: Key = ()
    """The key in parts."""

    def __str__(self) -> str:
        told = ": ".join(part for part in (self.origin, self.key, self.message) if part)
        return printable(f"{told}. {self.hint}" if self.hint else told, 1_000)


class ConfigRefused(Exception):
    """The configuration has mistakes. Nothing was started or changed."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint `Did you mean 'fit'?`, or the list of valid names."""
    names = sorted(known)
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There are: {', '.join(names)}." if names else ""
