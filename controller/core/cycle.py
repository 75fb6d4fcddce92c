"""One pass over the queue: the best job of every class, best class first, until nothing more fits."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from controller.core.events import JobPlaced
from controller.core.placement import Placer
from controller.core.state import State


def run_cycle(state: State, placer: Placer, now: float) -> Iterator[JobPlaced]:
    """Yield placements one by one; the caller makes each true before asking for the next.

    A class that does not fit is left for the rest of the pass, and until room appears somewhere:
    the cost follows classes and placements, not the number of waiting jobs.
    """
    gains = state.nodes.gains
    heads = [(lane.head(), lane.ask) for lane in state.queue if lane.blocked_at != gains]
    ready = [(head, ask) for head, ask in heads if head is not None]
    order = [(*head, index) for index, (head, _) in enumerate(ready)]
    heapq.heapify(order)
    while order:
        _, job_id, index = order[0]
        ask = ready[index][1]
        place = placer.find(ask)
        if place is None:
            state.queue.lanes[ask].blocked_at = gains
            heapq.heappop(order)
            continue
        attempt = state.jobs[job_id].attempt + 1
        yield JobPlaced(job_id, now, attempt, place.allocations, place.quality)
        lane = state.queue.lanes.get(ask)
        following = lane.head() if lane is not None else None
        if following is None:
            heapq.heappop(order)
        else:
            heapq.heapreplace(order, (*following, index))
