"""Events about nominations. A nomination keeps nodes and GPUs for a job until other jobs have left these
nodes and GPUs.
"""

from __future__ import annotations

from controller.core.model.allocation import Allocation
from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent, JobEvent


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is preempted for another job. `gpu_hours` is the lost work: the work since the victim's last
    checkpoint, or since its start.
    """

    job: int
    gpu_hours: float
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    """The nodes that an elastic job gives up. Empty: the job is stopped on all of its nodes."""
    target: tuple[Allocation, ...] = ()
    quality: int = 0
    """`target` contains the allocations to which the job is moved, and `quality` is the quality of this
    placement (see `quality_of`). If `target` is empty, the job is stopped and waits in the queue.
    """


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(JobEvent):
    """The job is nominated: `allocations` are kept for the job. The job starts in these allocations when its
    victims (the jobs that are preempted for it) have ended.

    `by` is the time at which all victims have ended at the latest.
    """

    allocations: tuple[Allocation, ...]
    quality: int
    victims: tuple[Victim, ...]
    strategy: str
    by: float

    def leaving(self, node: str) -> list[int]:
        """Return the ids of the victims that must leave this node if they run on it. A victim that gives up
        only other nodes is left out.
        """
        return [victim.job for victim in self.victims if not victim.nodes or node in victim.nodes]


@dataclass(frozen=True, slots=True)
class PreemptionDropped(JobEvent):
    """The nomination of the job was withdrawn, because the job cannot or must not start on the kept nodes any
    more. The allocations are no longer kept for the job.
    """

    why: str


WINDOW = "window"
"""The name of the preemption strategy that may preempt backfilled jobs after their predicted run time."""
WINDOW_CLOSED = "its backfill window has closed"
"""The cause of a preemption by the strategy `window`, as a part of `JobPreempted.by`."""
PREEMPTION = "preemption"
"""The `kind` of a move that a preemption caused. Moves of other kinds come from rebalancing or timed
drains.
"""


@dataclass(frozen=True, slots=True)
class MovePlanned(JobEvent):
    """A running job is moved to other nodes. The job was ordered to save a checkpoint and end. After this
    end, the job starts again in `allocations`.

    `until` is the time at which the present attempt ends at the latest. The move frees resources for the job
    `for_job`, or empties the node `node`.
    """

    attempt: int
    allocations: tuple[Allocation, ...]
    quality: int
    proposal: str
    kind: str
    gpu_hours: float
    until: float
    for_job: int | None = None
    node: str = ""


def move_cause(kind: str, proposal: str) -> str:
    """Return a text for users that names the cause of a move: a preemption, a timed drain, or a rebalancing
    proposal.
    """
    if not proposal:
        return PREEMPTION if kind == PREEMPTION else f"{kind} of its node"
    return f"rebalancing {proposal}"


@dataclass(frozen=True, slots=True)
class MoveUndone(JobEvent):
    """The move of the job has failed or was cancelled. The former allocations of the job, `allocations`, are
    kept so that the job can start in them again. If `allocations` is empty, the job waits in the queue.
    """

    attempt: int
    why: str
    allocations: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class RebalancePlanned(ClusterEvent):
    """The rebalancer decided to move jobs to other nodes. The purpose is to start a waiting job, empty a
    node, gather free GPUs on one node, or balance the load.
    """

    proposal: str
    kind: str
    by: str
    moves: tuple[int, ...]
    gpu_hours: float
    """The work that the moves lose, in GPU-hours."""
    worth: float
    """The gain from the moves, in GPU-hours."""
    for_job: int | None = None
    node: str = ""
