"""Why a job waits, and which jobs would be preempted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from wire.names import Reason


@dataclass(frozen=True)
class Ousted:
    """A running job that would be preempted, for which job, and the GPU-hours lost."""

    job: int
    label: str
    name: str
    user: str
    gpu_hours: float
    by: str = ""
    at: Optional[float] = None


@dataclass(frozen=True)
class FilterLoss:
    """Nodes that one filter rejected, with the names of a few."""

    filter: str
    lost: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ahead:
    """A waiting job ahead in the queue, and its request or reservation."""

    job: int
    label: str
    user: str
    wants: str


@dataclass(frozen=True)
class Points:
    """One term of a queue position: a factor from 0 to 1 times its weight."""

    name: str
    factor: float
    weight: float
    points: float
    note: str = ""
    """The source of the factor, if it is not the job itself."""


@dataclass(frozen=True)
class Why:
    """The main reason as a sentence, the nodes that each filter rejected, and the position in the queue."""

    reason: Reason
    sentence: str
    losses: tuple[FilterLoss, ...] = ()
    position: Optional[int] = None
    fitting: int = 0
    receipt: tuple[Points, ...] = ()
    """The terms of the job's position in the queue; jobs are ordered by their sum."""
    ahead: tuple[Ahead, ...] = ()
    """The first jobs ahead in the queue; there are `position` - 1 of them in all."""
    notes: tuple[str, ...] = ()
    """Other causes, such as an exceeded soft limit or GPUs out of service."""
