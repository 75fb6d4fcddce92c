"""The entries of the reservation table: reservations of conservative backfill, and running attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.node_table import RowSet
from controller.core.model.events import Allocation
from controller.core.model.request import LicenceCounts, PerNodeRequest
from controller.core.placement.placer import Placement

ENDS_SOON_S = 1.0
"""An overdue job that is being ended is expected to end within this many seconds."""
END_UNDER_WAY_S = 60.0
"""The most seconds from the end of a job's grace to the report of its end: kill, wait for the processes,
report."""


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """The latest start of a waiting job, and the nodes reserved for it."""

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
    """By node row, the resources that were free when the GPUs were chosen."""


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """The resources that an attempt takes on the timelines, to be returned when it ends."""

    attempt: int
    ends_at: float
    allocations: Mapping[str, Allocation]
    """By node name."""
    licences: LicenceCounts
    waits_for_victims: bool = False
    """True for a job that is nominated to these nodes and starts when its victims have left."""


def overdue_end(end: float, now: float) -> float:
    """The expected end of a job that should have ended at `end` and still holds resources.

    1. For the first END_UNDER_WAY_S seconds the job is expected to end within ENDS_SOON_S. A later estimate
       would move the reservation of the next job away, and a short job could start in the gap and delay it.
    2. After that, its processes resist SIGKILL. The job is expected to stay for as long again as it is
       overdue.

    Example: limit and grace of a gang of two are over at 10:00:00, and its members end at 10:00:00.2 and
    10:00:00.6. At 10:00:00.4 the reservation of job 9 on both nodes is planned for 10:00:01.4, so a job of
    50 s cannot start on the first node in between.
    """
    late = now - end
    return now + (ENDS_SOON_S if late <= END_UNDER_WAY_S else late)
