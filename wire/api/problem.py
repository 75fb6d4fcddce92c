"""The JSON body of every answer that refuses a request."""

from __future__ import annotations

from wire.dataclass import dataclass


@dataclass(frozen=True)
class Problem:
    """Why a request was refused. Programs should test `code`. `message` is the error for users, `where` the
    field that is wrong, and `hint` a way to correct it.
    """

    code: str
    message: str
    where: str = ""
    hint: str = ""
