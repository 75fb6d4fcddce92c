"""The scheduling cycle with time slices: starts jobs in queue order, and lets running jobs give way."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from controller.core.backfill.slices.slice_victims import SliceExchange, find_exchange
from controller.core.backfill.start_rules.limited_starts import start_limit
from controller.core.cluster.node_table import Bools
from controller.core.estimates.service_rates import run_s_before, run_s_of
from controller.core.model.events.nominations import PreemptionPlanned, Victim
from controller.core.model.job import NEVER, Job
from controller.core.queue.order import ServiceOrder
from controller.core.state.barred_nodes import barred_nodes
from wire.names import JobState

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply

SLICE = "slice"
"""The strategy name in the events of preemptions for time slices."""
GAIN = 1.35
"""A waiting job displaces running jobs only if it is worth more than this many times as much as all of them.
The worth of a job is the expected number of ends for each second of run time (ServiceRates).
"""
LEAST_WAIT_S = 600.0
"""If no event causes a cycle earlier, the next cycle comes at least this many seconds after this one."""


class SlicePass:
    """One scheduling cycle of a profile with `[scheduler] slice_s`. Backfill has no effect in such a profile.

    Algorithm
    1. Take the first job of each lane, in queue order.
    2. Start the job if it fits on free nodes that step 4 does not keep.
    3. Otherwise look for victims among the running jobs of the profile that can save their state, may be
       preempted and have run for at least a slice since their start. Preempt them if the waiting job is worth
       more than GAIN times as much as all victims together.
    4. Otherwise look for victims in the same way, but also among jobs whose slice is not over. If the waiting
       job is worth more than GAIN times as much as these victims, no job starts on their nodes in this cycle.
       The waiting job can then start there when the last slice is over. Without this step, a gang would never
       get all its nodes at the same time.
    5. Continue with the next job. If step 3 has found no victims for a job, skip steps 3 and 4 for all later
       jobs with the same number of GPUs, because these jobs are worth no more.

    Invariant: a running job is stopped only if its victims together make room for the waiting job, and never
    before it has run for a slice. Cost: O(lanes + running jobs), and O(nodes + running jobs) for each number
    of GPUs among the waiting jobs.
    """

    def __init__(self, cycle: Cycle, order: ServiceOrder, slice_s: float) -> None:
        self.again_at = NEVER
        self._cycle = cycle
        self._order = order
        self._slice_s = slice_s

    def run(self, now: float, apply: Apply) -> None:
        cycle, state = self._cycle, self._cycle.state
        self.again_at = NEVER
        cycle.head = None
        cycle.queue.pending_reasons.clear()
        cycle.queue.lane_pending_reasons.clear()
        running = [job for job in self._running() if job.spec.gpus]
        state.service_rates.observe_running(
            (job.spec.gpus, run_s_before(job), run_s_of(job, now)) for job in running
        )
        self._worth = {job.id: self._worth_of(job, now) for job in running}
        self._kept: Bools = np.zeros(len(state.nodes), dtype=np.bool_)
        cycle.sort_by(now)
        tried: set[float] = set()
        lanes = [
            (cycle.position(head), head, lane) for lane in cycle.queue.lanes.values() if (head := lane.head())
        ]
        heapq.heapify(lanes)
        while lanes:
            _, (_, number), lane = heapq.heappop(lanes)
            job = state.jobs[number]
            if not self._start(job, tried, now, apply):
                continue
            if lane.ranks and (head := lane.head()) is not None:
                heapq.heappush(lanes, (cycle.position(head), head, lane))
        if len(cycle.queue):
            ends = [self._slice_end(job) for job in self._running() if self._takes_turns(job)]
            self.again_at = max(
                min((at for at in ends if at > now), default=now + self._slice_s), now + LEAST_WAIT_S
            )

    def _start(self, job: Job, tried: set[float], now: float, apply: Apply) -> bool:
        """Start or nominate the job if possible. Return whether the next job of its lane can be tried."""
        cycle, state = self._cycle, self._cycle.state
        if start_limit(cycle, job, now) is not None:
            return False
        barred = barred_nodes(state, job, now)
        barred = self._kept.copy() if barred is None else barred | self._kept
        placement = cycle.placer.find(job.ask, barred)
        if placement is not None:
            cycle.start(job.id, placement, now, apply)
            if job.spec.gpus:
                self._worth[job.id] = self._worth_of(job, now)
            return True
        shape = cycle.placer.shape(job.ask)
        if shape is None or not job.spec.gpus or job.spec.gpus in tried:
            return False
        worth = self._worth_of(job, now)

        def find(*, ended: bool) -> SliceExchange | None:
            def eligible(other: Job) -> bool:
                over = not ended or self._slice_end(other) <= now
                return over and self._takes_turns(other) and state.queue_tier(other) >= state.queue_tier(job)

            found = find_exchange(state, cycle.placer, shape, barred, eligible, self._worth)
            return found if found is not None and found.victims and worth > GAIN * found.worth else None

        exchange = find(ended=True)
        if exchange is not None:
            apply(self._event(job, exchange, now))
            return True
        tried.add(job.spec.gpus)
        later = find(ended=False)
        if later is not None:
            self._kept[list(later.rows)] = True
        return False

    def _event(self, job: Job, exchange: SliceExchange, now: float) -> PreemptionPlanned:
        jobs, placement = self._cycle.state.jobs, exchange.placement
        victims = [jobs[each] for each in sorted(exchange.victims)]
        return PreemptionPlanned(
            job.id,
            now,
            placement.allocations,
            placement.quality,
            tuple(Victim(each.id, each.unsaved(now), each.attempt) for each in victims),
            SLICE,
            max(now + self._cycle.preemption.grace(each) for each in victims),
        )

    def _running(self) -> list[Job]:
        state, profile = self._cycle.state, self._cycle.profile
        ids = dict.fromkeys(number for node in state.nodes for number in node.held)
        return [job for number in ids if (job := state.jobs[number]).profile == profile]

    def _takes_turns(self, job: Job) -> bool:
        guards = self._cycle.preemption.guards_of(job)
        return (
            job.id in self._worth
            and job.state is JobState.RUNNING
            and job.stopping is None
            and job.spec.saves
            and job.spec.preemptible
            and guards.preemptible
            and not job.spec.gang.elastic
        )

    def _slice_end(self, job: Job) -> float:
        began = job.started_at if job.started_at is not None else NEVER
        return began + max(self._slice_s, job.spec.min_runtime_s)

    def _worth_of(self, job: Job, now: float) -> float:
        return 1.0 / self._order.seconds_per_end(job, self._cycle.state.service_rates, now)
