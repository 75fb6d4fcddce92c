"""The body of every refused request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Why a request was refused. Programs test `code`; `message` is the error, `where` the field with the
    error, and `hint` a way to correct it.
    """

    code: str
    message: str
    where: str = ""
    hint: str = ""
