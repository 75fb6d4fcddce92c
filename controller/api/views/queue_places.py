"""The places of waiting jobs in the queue, with their expected starts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from controller.core.state.order_view import position_key
from controller.core.state.state import State
from wire.api.jobs import QueuePlace

MOST = 1_000
"""The most places of one scheduler profile in an answer, so that the time for an answer is limited with any
number of waiting jobs."""


def queue_places(state: State, starts: Mapping[int, float], now: float) -> dict[int, QueuePlace]:
    """Return the places of the first `MOST` waiting jobs of each profile, by job id, in queue order. `starts`
    has the expected starts.
    """
    return {
        job: QueuePlace(job, place, starts.get(job))
        for queue in state.queues.values()
        for place, job in enumerate(islice(queue.in_order(position_key(state, queue, now)), MOST), 1)
    }
