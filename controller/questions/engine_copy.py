"""The copy of the engine that answers one question, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.inputs import Refusal
from controller.questions.processes import Fork

T = TypeVar("T")

RESERVE = 0.15
"""The part of the budget that is reserved for building and sending the answer."""


class QuestionRefused(Exception):
    """The question cannot be answered as it was asked."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class EngineCopy:
    """The state after journal entry `seq`, at the time `now`; answers are due at `deadline`.

    The engine is this process's own: answering may change it, and use it up.
    """

    engine: Engine
    config: Config
    seq: int
    now: float
    deadline: float
    """On the monotonic clock."""
    spare_s: float = 0.0
    """The seconds that are left after the deadline to build the answer."""

    @property
    def in_time(self) -> bool:
        """Is the deadline still ahead?"""
        return time.monotonic() < self.deadline

    def on_copy(self, engine: Engine, work: Callable[[Engine], T]) -> T | None:
        """The result of this work on the engine, done in a fork; None if it was not done in time."""
        return Fork(lambda: work(engine)).result(self.deadline)


class FirstPart:
    """Says when the first part of a forecast is done: the next 24 hours and the first 200 waiting jobs."""

    HORIZON_S = 24 * 3600.0
    JOBS = 200

    def __init__(self, now: float, first: Iterable[int]) -> None:
        self._until = now + self.HORIZON_S
        self._missing = list(first)

    def done(self, moment: float, starts: Container[int]) -> bool:
        """Is the first part known?"""
        if moment < self._until:
            return False
        self._missing = [job for job in self._missing if job not in starts]
        return not self._missing
