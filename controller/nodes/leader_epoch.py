"""What connections tell agents about the leading controller: its epoch and newest journal entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _zero() -> int:
    return 0


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Functions that return the present epoch of this controller, and the newest journal entry in the form
    that agents remember. They return 0 and "" if the cluster can have only one controller.
    """

    epoch: Callable[[], int] = _zero
    journal_head: Callable[[], str] = _nothing


ALONE = Leadership()
"""For a cluster that can have only one controller."""
