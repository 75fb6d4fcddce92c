"""Goes through the waiting jobs in queue order, and leaves out jobs that would break a limit."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from controller.core.queue.queue import Lane

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle


def jobs_within_limits(cycle: Cycle, lanes: Iterable[Lane], now: float) -> Iterator[tuple[int, int | None]]:
    """Yield the waiting jobs, in queue order, that would break no limit if all waiting jobs before them
    started too.

    Each job is yielded with the greatest number of nodes that the limits allow the job. None means all nodes
    that the job requests.

    1. A lane is a list of jobs with the same request. While limits exist, all jobs of a lane also have the
       same tenant. A heap contains the first job of each lane, sorted by queue position.
    2. Take the job with the lowest position. If the job breaks no limit, claim the quota that the job needs,
       yield the job, and push the next job of the lane.
    3. If the job breaks a limit that concerns only this job, such as a limit on GPU time, push the next job
       of the lane. Otherwise leave out the rest of the lane. These jobs have the same request and come later,
       so they would break the same limit.

    Cost: one queue position for each lane, then one position and one check for each job that is yielded or
    breaks a limit. The rest of a lane that is left out costs nothing.

    Example: user ada has a quota of 24 GPUs and uses 20 of them. Her 500 waiting jobs of 1 GPU are in one
    lane. The first four are yielded. The fifth breaks the quota, so the other 495 are not checked.
    """
    if not cycle.state.limited:
        for _, job in heapq.merge(*lanes, key=cycle.position_of):
            yield job, None
        return
    key, limits = cycle.position, cycle.limits.claims(now)
    heap = []
    for number, lane in enumerate(lanes):
        entries = iter(lane)
        first = next(entries, None)
        if first is not None:
            heap.append((key(first), number, first, entries))
    heapq.heapify(heap)
    while heap:
        _, number, (_, job), entries = heap[0]
        within, most, stays = limits.claim(cycle.state.jobs[job])
        if within:
            yield job, most
        following = next(entries, None) if stays else None
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (key(following), number, following, entries))
