"""Backfill: tries the jobs behind the first waiting job, in the order of the backfill plugin."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.core.backfill.candidates.lane_candidates import BackfillCandidates
from controller.core.queue.queue import Lane

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply


def backfill_all(cycle: Cycle, now: float, apply: Apply) -> None:
    """Start waiting jobs of all lanes that delay no backfill reservation."""
    if cycle.backfill.starts_behind:
        _start_candidates(cycle, _block_full_lanes(cycle, now), now, apply)


def backfill_new(cycle: Cycle, jobs: list[tuple[int, Lane]], now: float, apply: Apply) -> None:
    """Start the new waiting jobs that delay no backfill reservation. `jobs` contains (job, lane)."""
    if cycle.backfill.starts_behind:
        entry = cycle.queue.entry
        candidates = (BackfillCandidates(cycle, lane, [entry(job)], now) for job, lane in jobs)
        _start_candidates(cycle, candidates, now, apply)


def _block_full_lanes(cycle: Cycle, now: float) -> list[BackfillCandidates]:
    """Block the lanes whose jobs fit on too few nodes now. Return the candidates (jobs to backfill) of the
    lanes that are not blocked.

    A lane is a list of waiting jobs with the same request. A blocked lane is skipped until resources become
    free.
    """
    nodes, placer = cycle.state.nodes, cycle.placer
    gains, changes = nodes.room_version, nodes.change_count
    # Keep the request for one node (`part`) and the number of nodes on which it fits (`fitting`) for the next
    # lane, because two lanes often differ only in their number of nodes.
    part, fitting = None, 0
    found = []
    for lane in cycle.queue:
        if lane.fit.blocked_at == gains:
            continue
        shape = placer.shape(lane.ask)
        if shape is not None and shape.part is not part:
            part = shape.part
            fitting = placer.max_nodes(part) if nodes.may_hold(part) else 0
        if shape is None or fitting < shape.nodes:
            lane.fit.block(gains)
        else:
            found.append(BackfillCandidates(cycle, lane, lane, now, changes))
    return found


def _start_candidates(cycle: Cycle, lanes: Iterable[BackfillCandidates], now: float, apply: Apply) -> None:
    """Start the candidates that delay no backfill reservation. A heap contains the current candidate of each
    lane.
    """
    waiting = [(key, number, lane) for number, lane in enumerate(lanes) if (key := lane.advance())]
    heapq.heapify(waiting)
    while waiting:
        key, number, lane = waiting[0]
        if cycle.position_of is not None and (moved_to := lane.key()) > key:
            heapq.heapreplace(waiting, (moved_to, number, lane))
            continue
        placement = lane.take_placement()
        if placement is not None:
            cycle.start(lane.job, placement, now, apply)
        following = lane.advance()
        if following is None:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (following, number, lane))
