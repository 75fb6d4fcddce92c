"""The JSON body of every answer that refuses a request."""

from __future__ import annotations

from wire.dataclass import dataclass

EFFECT_CHANGED = "effect"
"""The value of `Problem.where` if a change was refused because its effect would differ from the what-if
answer that the user has seen.
"""


@dataclass(frozen=True)
class Problem:
    """The reason why a request was refused. Programs should test `code`. `message` is the error for users,
    `where` the name of the wrong field, and `hint` a way to correct the request.
    """

    code: str
    message: str
    where: str = ""
    hint: str = ""
