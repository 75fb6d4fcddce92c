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
"""An overdue job that is being ended is expected to end within this many seconds."""
END_UNDER_WAY_S = 60.0
"""The most seconds from the end of a job's grace to the report of its end: kill, wait for the processes,
report."""


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """The time at which a waiting job starts at the latest, and the nodes and GPUs reserved for it."""

    job: int
    starts_at: float
    ends_at: float
    rows: RowSet
    placement: Placement
    part: PerNodeRequest
    on_fewer_nodes: bool = False
    licences: LicenceCounts = ()
    most_nodes: int | None = None
    """The most nodes that quotas allow the job; None for all nodes it requests."""
    free: Mapping[int, FreeResources] = field(default_factory=dict, compare=False)
    """By row number of the node, the resources that were free when the GPUs were chosen."""


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
    """True for a scavenger that may be preempted before its expected end. `ends_at` is then the time from
    which it may be preempted.
    """
    waits_for_victims: bool = False
    """True for a job that is nominated to these nodes and starts when its victims have left."""


def overdue_end(end: float, now: float) -> float:
    """Return the expected end of a job that should have ended at `end` and still holds resources.

    1. For the first END_UNDER_WAY_S seconds the job is expected to end within ENDS_SOON_S. If a later end
       were assumed, the reservation of the next job would move later. A short job could then start on nodes
       that are already free, and delay the next job although all its nodes were about to be free.
    2. After that, it is assumed that its processes do not react to SIGKILL. A job that is overdue by n
       seconds is expected to end in another n seconds.

    Example: time limit and grace of a job on two nodes are over at 10:00:00. Its processes end on the first
    node at 10:00:00.2 and on the second at 10:00:00.6. At 10:00:00.4 the reservation of job 9 on both nodes
    is planned for 10:00:01.4, so a job of 50 s cannot start on the first node before job 9.
    """
    late = now - end
    return now + (ENDS_SOON_S if late <= END_UNDER_WAY_S else late)
