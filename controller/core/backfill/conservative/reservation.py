"""The entries of the reservation table: reservations of conservative backfill, and running attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.node_table import RowSet
from controller.core.model.allocation import Allocation
from controller.core.model.request import LicenceCounts, PerNodeRequest
from controller.core.placement.placer import Placement

ENDS_SOON_S = 1.0
"""A job that is overdue and is being ended is expected to end within this many seconds."""
END_UNDER_WAY_S = 60.0
"""At most this many seconds pass from the end of a job's grace to the report of its end. In this time the
processes are killed, waited for and reported.
"""


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """The backfill reservation of a waiting job: the nodes and GPUs that are reserved for the job, and from
    when to when.
    """

    job: int
    starts_at: float
    ends_at: float
    rows: RowSet
    placement: Placement
    part: PerNodeRequest
    on_fewer_nodes: bool = False
    licences: LicenceCounts = ()
    most_nodes: int | None = None
    """The greatest number of nodes that quotas allow the job. None means all nodes that the job requests."""
    free: Mapping[int, FreeResources] = field(default_factory=dict, compare=False)
    """The resources that were free when the GPUs were chosen, by row number of the node."""

    @property
    def values(
        self,
    ) -> tuple[float, float, RowSet, Placement, PerNodeRequest, bool, LicenceCounts, int | None]:
        """All fields except `job` and `free`, in their order. A new reservation of the job with the same
        values does not replace this reservation.
        """
        return (
            *(self.starts_at, self.ends_at, self.rows, self.placement, self.part),
            *(self.on_fewer_nodes, self.licences, self.most_nodes),
        )


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """The resources of a running attempt and its expected end. The reservation table counts these resources
    as in use until this end.
    """

    attempt: int
    ends_at: float
    allocations: Mapping[str, Allocation]
    """The allocation on each node, by node name."""
    licences: LicenceCounts
    yields: bool = False
    """True for a scavenger (a job of the lowest priority) that may be preempted before its expected end.
    `ends_at` is then the time from which other jobs may preempt the scavenger.
    """
    waits_for_victims: bool = False
    """True for a nominated job. The nodes are kept for this job, and the job starts when its victims have
    left the nodes.
    """


def overdue_end(end: float, now: float) -> float:
    """Return the expected end of a job that should have ended at `end` and still holds resources.

    1. For the first END_UNDER_WAY_S seconds the job is expected to end within ENDS_SOON_S. If a later end
       were assumed, the reservation of the next job would move to a later time. A short job could then take a
       node that is already free, and delay the next job.
    2. After that, its processes are assumed not to react to SIGKILL. A job that is overdue by n seconds is
       expected to end in another n seconds.

    Example: the time limit and the grace of a job on two nodes are over at 10:00:00. Its processes end on the
    first node at 10:00:00.2 and on the second at 10:00:00.6. At 10:00:00.4 the reservation of job 9 on both
    nodes is planned for 10:00:01.4, so a job of 50 s cannot start on the first node before job 9.
    """
    late = now - end
    return now + (ENDS_SOON_S if late <= END_UNDER_WAY_S else late)
