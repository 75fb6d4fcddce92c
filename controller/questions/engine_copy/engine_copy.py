"""The copy of the engine in the process that answers one question (explain, what-if or start estimates)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.decision.decision import Refusal
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.forked_processes import Fork

T = TypeVar("T")

RESERVE = 0.15
"""The fraction of the time limit of a question that is kept for building and sending the answer."""


class QuestionRefused(Exception):
    """Raised if a question cannot be answered. `refusal` has the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class EngineCopy:
    """A copy of the engine for one question. Its state includes all journal entries up to number `seq`, and
    its time is `now`.

    Only the process that answers the question uses the copy, so the process may change the copy. The answer
    must be ready at `deadline`.
    """

    engine: Engine
    config: Config
    seq: int
    now: float
    deadline: Deadline
    spare_s: float = 0.0
    """Seconds after the deadline in which the answer may still be built."""

    @property
    def in_time(self) -> bool:
        return self.deadline.left() > 0

    def on_copy(self, engine: Engine, work: Callable[[Engine], T]) -> T | None:
        """Call work(engine) in a forked process and return the result. `engine` itself does not change.
        Return None if the result is not ready by the deadline."""
        return Fork(lambda: work(engine)).result(self.deadline)


class FirstPart:
    """Decides when the first part of a forecast is complete: the next 24 hours and the first 200 waiting
    jobs."""

    HORIZON_S = 24 * 3600.0
    JOBS = 200

    def __init__(self, now: float, first: Iterable[int]) -> None:
        self._until = now + self.HORIZON_S
        self._missing = list(first)

    def done(self, moment: float, starts: Container[int]) -> bool:
        """Return whether a forecast has reached the end of the next 24 hours and found the starts of the
        first 200 waiting jobs. `moment` is the time that the forecast has reached. `starts` has the jobs
        whose starts are known."""
        if moment < self._until:
            return False
        self._missing = [job for job in self._missing if job not in starts]
        return not self._missing
