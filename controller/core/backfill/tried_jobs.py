"""Decides whether a scheduling cycle may skip the jobs that an earlier cycle has tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.queue.queue import QueueEntry

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle


def versions(cycle: Cycle) -> tuple[int, ...]:
    """Return the version numbers of nodes, quotas, shares and backfill reservations. While all these numbers
    stay the same, a job that did not fit cannot start.

    The numbers are `Nodes.room_version` (resources became free), `Nodes.layout_version` (nodes were added,
    removed or changed), the versions of operators' reservations, quotas and fair-share weights, and the
    edition of the reservation table that profiles share.
    """
    state, shared = cycle.state, cycle.shared
    return (
        state.nodes.room_version,
        state.nodes.layout_version,
        state.reservations.version,
        state.quotas.version,
        state.shares.version,
        0 if shared is None else shared.edition,
    )


def only_new_jobs_matter(cycle: Cycle, head: QueueEntry, fresh: list[int]) -> bool:
    """Return whether this cycle may skip all jobs except the new ones in `fresh`.

    `head` is the queue entry of the first waiting job in the last cycle that tried all jobs. The result is
    True if nothing has changed since that cycle that could let an older job start, and if no new job comes
    before `head`.
    """
    queue, position_of = cycle.queue, cycle.position_of
    if (
        head[1] not in queue
        or head[1] in fresh  # The first waiting job was edited and may fit now.
        or queue.entry(head[1]) != head
        or cycle.seen != versions(cycle)
    ):
        return False
    if position_of is None:
        return all(queue.entry(job) > head for job in fresh)
    position = position_of(head)
    # Compare only the first job of each lane (list of jobs with the same request), because the lane's new
    # jobs come after it.
    heads = (first for lane in queue if (first := lane.head()) is not None)
    return all(position_of(first) >= position for first in heads)
