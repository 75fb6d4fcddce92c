"""Why a job waits, and who would have to make room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from wire.words import Reason


@dataclass(frozen=True)
class Ousted:
    """A running job that would be ended, for which job, and what that would lose now."""

    job: int
    label: str
    name: str
    user: str
    gpu_hours: float
    by: str = ""
    at: Optional[float] = None


@dataclass(frozen=True)
class FilterLoss:
    """Nodes that one filter took away, with a few of their names."""

    filter: str
    lost: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Points:
    """One line of a receipt: a factor from 0 to 1 times its weight."""

    name: str
    factor: float
    weight: float
    points: float
    note: str = ""
    """Where the factor comes from, if it is not the job's own."""


@dataclass(frozen=True)
class Why:
    """The one dominant reason in a sentence, the nodes lost per filter, the place in the queue."""

    reason: Reason
    sentence: str
    losses: tuple[FilterLoss, ...] = ()
    position: Optional[int] = None
    fitting: int = 0
    receipt: tuple[Points, ...] = ()
    """What the job's place in the queue is made of; the sum of the points, in this order, decides."""
