"""The body of every refused request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A refusal: `code` for programs, `message`: what is wrong, `where`: the field, `hint`: what to do."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
