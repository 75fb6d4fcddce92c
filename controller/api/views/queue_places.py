"""The places of waiting jobs in the queue, with their expected starts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from controller.core.state.order_view import position_key
from controller.core.state.state import State
from wire.api.jobs import QueuePlace

MOST = 1_000
"""The most waiting jobs of one scheduler profile in an answer. This limits the time for the answer if many
jobs wait.
"""


def queue_places(state: State, starts: Mapping[int, float], now: float) -> dict[int, QueuePlace]:
    """Return a dict from job id to place in the queue, for the first `MOST` waiting jobs of each scheduler
    profile, in queue order. `starts` has the expected starts of jobs.
    """
    return {
        job: QueuePlace(job, place, starts.get(job))
        for queue in state.queues.values()
        for place, job in enumerate(islice(queue.in_order(position_key(state, queue, now)), MOST), 1)
    }
