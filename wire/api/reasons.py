"""API bodies that explain why a job waits and which jobs would be preempted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from wire.names import Reason


@dataclass(frozen=True)
class Ousted:
    """A running job that would be preempted for the job `by`, and the GPU-hours that would be lost."""

    job: int
    label: str
    name: str
    user: str
    gpu_hours: float
    by: str = ""
    at: Optional[float] = None


@dataclass(frozen=True)
class FilterLoss:
    """The number of nodes that one filter rejected, and the names of some of them."""

    filter: str
    lost: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ahead:
    """A waiting job that is ahead in the queue. `wants` describes its request or its reservation."""

    job: int
    label: str
    user: str
    wants: str


@dataclass(frozen=True)
class Points:
    """The points that one factor gives a job: the factor, from 0 to 1, times its weight."""

    name: str
    factor: float
    weight: float
    points: float
    note: str = ""
    """Where the factor comes from, if not from the job itself."""


@dataclass(frozen=True)
class Why:
    """Why a job waits: the main reason as a sentence, the nodes that each filter rejected, and the job's
    position in the queue.
    """

    reason: Reason
    sentence: str
    losses: tuple[FilterLoss, ...] = ()
    position: Optional[int] = None
    fitting: int = 0
    receipt: tuple[Points, ...] = ()
    """The points that each factor gives the job. The queue is ordered by their sum."""
    ahead: tuple[Ahead, ...] = ()
    """The first jobs of the queue that are ahead of this job. In total `position` - 1 jobs are ahead."""
    notes: tuple[str, ...] = ()
    """Further reasons, such as an exceeded soft limit or GPUs out of service."""
