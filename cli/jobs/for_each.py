"""Sends one request for each of several items. A refused request does not stop the other requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cli.output.stderr import print_refusal
from wire.http.transport import Refused

Item = TypeVar("Item")
Done = TypeVar("Done")


def for_each(items: Iterable[Item], act: Callable[[Item], Done]) -> tuple[list[Done], list[int]]:
    """Call `act` for each item, and print an error for each refusal. Return the results of the accepted
    calls, and the exit codes of the refused calls.
    """
    done: list[Done] = []
    refusals: list[int] = []
    for item in items:
        try:
            done.append(act(item))
        except Refused as refused:
            refusals.append(print_refusal(refused.problem))
    return done, refusals
