"""API bodies for the reason why a job waits, and for the jobs that it would preempt."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass
from wire.names import Reason


@dataclass(frozen=True)
class Ousted:
    """A running job that would be preempted for the job `by`, and the GPU-hours of work that
    would be lost.
    """

    job: int
    label: str
    name: str
    user: str
    gpu_hours: float
    by: str = ""
    at: Optional[float] = None


@dataclass(frozen=True)
class FilterLoss:
    """The number of nodes that one filter rejected for a job, and the names of some of these nodes."""

    filter: str
    lost: int
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ahead:
    """A job that is ahead of the explained job in the queue. `wants` is the request of the job that is ahead,
    as text: its GPUs or CPUs, time limit and priority.
    """

    job: int
    label: str
    user: str
    wants: str


@dataclass(frozen=True)
class Points:
    """The points of a job from one priority factor, or of a node from one scorer: `points` is `factor` (a
    value from 0 to 1) times `weight`.
    """

    name: str
    factor: float
    weight: float
    points: float
    note: str = ""
    """The source of `factor`, such as a project, if `factor` does not come from the job itself."""


@dataclass(frozen=True)
class NodeScore:
    """The points that each scorer gives a node for a waiting job. If the job fits on no node now, the rated
    nodes are those that could run the job when idle, and `fits` is False for each of these nodes.

    For a running job, the points that the node had when the job was placed. `chosen` is True for the nodes of
    the job, and False for other nodes on which the job would have fitted.
    """

    node: str
    parts: tuple[Points, ...]
    fits: bool = True
    chosen: bool = False

    @property
    def points(self) -> float:
        """Return the sum of the points of all scorers."""
        return sum(each.points for each in self.parts)


@dataclass(frozen=True)
class Why:
    """The reasons why a job waits: the main reason as a sentence, the number of nodes that each filter
    rejected, and the job's `position` in the queue, from 1; None for a job that is not in the queue.
    """

    reason: Reason
    sentence: str
    losses: tuple[FilterLoss, ...] = ()
    position: Optional[int] = None
    fitting: int = 0
    receipt: tuple[Points, ...] = ()
    """The points that each priority factor gives the job. The queue is ordered by the sum of the points."""
    ahead: tuple[Ahead, ...] = ()
    """The first jobs of the queue that are ahead of this job. In total `position` - 1 jobs are ahead."""
    notes: tuple[str, ...] = ()
    """Other reasons besides `sentence`, such as an exceeded soft limit or GPUs out of service."""
    nodes: tuple[NodeScore, ...] = ()
    """The nodes that the scorers rate best for a waiting job, the best first. For a running job: its nodes
    and the best other nodes, with their points when the job was placed.
    """
