"""A reservation of conservative backfill, and a running job as the reservation table knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.node_table import RowSet
from controller.core.model.events import Allocation
from controller.core.model.request import LicenceCounts, PerNodeRequest
from controller.core.placement.placer import Placement

ENDS_SOON_S = 1.0
"""While the end of an overdue job is under way, it is planned to end within this."""
END_UNDER_WAY_S = 60.0
"""The longest that the end of a job takes after its grace: kill, wait for the processes, report."""


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """When and on which nodes a waiting job starts at the latest."""

    job: int
    starts_at: float
    ends_at: float
    rows: RowSet
    placement: Placement
    part: PerNodeRequest
    on_fewer_nodes: bool = False
    licences: LicenceCounts = ()
    most_nodes: int | None = None
    """The most nodes that quotas allow the job; None for all it asks for."""
    free: Mapping[int, FreeResources] = field(default_factory=dict, compare=False)
    """By node row, what was free when the GPUs were chosen."""


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """What an attempt takes from the timelines, to be returned when it ends."""

    attempt: int
    ends_at: float
    allocations: Mapping[str, Allocation]
    """By node name."""
    licences: LicenceCounts
    waits_for_victims: bool = False
    """The job has a claim on these nodes, and starts when its victims have left."""


def overdue_end(end: float, now: float) -> float:
    """When plans count on the end of a job that should have ended at `end` and still holds something.

    A reservation behind an overdue job must not move away from it: in the gap a later, shorter job would
    start on nodes of the reservation and delay it. So the job counts as about to end while its end is under
    way, and after that, when its processes resist SIGKILL, as ending after as long again as it is overdue.

    Example: limit and grace of a gang of two are over at 10:00:00, and its members return at 10:00:00.2 and
    10:00:00.6. At 10:00:00.4 job 9, for which both nodes are reserved, is planned for 10:00:01.4. A job of
    50 s cannot start on the first of them meanwhile.
    """
    late = now - end
    return now + (ENDS_SOON_S if late <= END_UNDER_WAY_S else late)
