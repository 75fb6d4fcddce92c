"""Why a configuration is not taken: every problem at once, each with its place and a way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wire.text import plain


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong. `origin` is `file:line`, the file, or an environment variable."""

    message: str
    key: str = ""
    origin: str = ""
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        told = ": ".join(part for part in (self.origin, self.key, self.message) if part)
        return plain(f"{told}. {self.hint}" if self.hint else told, 1_000)


class ConfigRefused(Exception):
    """The configuration cannot be used; nothing was started."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'fit'?`, or what there is to choose from."""
    names = sorted(known)
    close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There are: {', '.join(names)}." if names else ""
