"""One action on many things, one request each: what fails for one is said, and the others are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cli.messages import refusal
from wire.transport import Refused

Item = TypeVar("Item")
Done = TypeVar("Done")


def each(items: Iterable[Item], act: Callable[[Item], Done]) -> tuple[list[Done], list[int]]:
    """What was done, and the exit codes of what was refused."""
    done: list[Done] = []
    refusals: list[int] = []
    for item in items:
        try:
            done.append(act(item))
        except Refused as refused:
            refusals.append(refusal(refused.problem))
    return done, refusals
