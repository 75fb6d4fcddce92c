"""Orders machines for waiting jobs that would start on them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.engines.contract import Offer
from controller.engines.pools.back_off import BackOff
from controller.engines.pools.budget import Budget
from controller.engines.pools.fleet import Fleet
from controller.engines.pools.machine_pool import PoolOptions
from wire.job.placement.affinity import Taint

MOST_SHAPES = 8
"""The most offers for which one search simulates the queue."""
HOUR_S = 3_600.0
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True)
class Demand:
    """The waiting jobs that would start on hypothetical nodes: `needed` of the nodes are used, `jobs` jobs
    start on them, and `project` is the project of the first of these jobs.
    """

    needed: int
    jobs: int
    project: str


Simulate = Callable[
    [tuple[HypotheticalNodes, ...], tuple[HypotheticalNodes, ...], float],
    Awaitable[tuple[Demand, ...] | None],
]
"""A function (ordered, further, limit_s) that simulates the queue. It returns, for each of the nodes in
`further`, the jobs that would start there although the nodes in `ordered` come too. It returns None if the
simulation was not ready within `limit_s` seconds.
"""


class ScaleOut:
    """Orders machines of one pool.

    1. Do nothing while no job waits, while the pool has `most` machines, or while `most_unanswered` machines
       are ordered and have not connected.
    2. Of the offers whose shape is not paused in their zone and whose price is within the caps, take the
       cheapest MOST_SHAPES.
    3. For each offer, simulate the queue until the machine would be ready, with the machines that are ordered
       already, and then with up to `most` further nodes of this shape. Jobs that start on the further nodes
       are the demand.
    4. Choose the offer with the lowest cost for each started job: price per hour of the needed machines, and
       the boot time multiplied by `wait_price`.
    5. Record the needed machines as wanted. Keeper orders them.

    A pool that only counted the GPUs of waiting jobs would order too many machines: a job may wait for a
    quota, for another job, or only for seconds. The simulation takes these reasons into account.

    Example: job 7 requests 4 GPUs and waits behind a job that ends in 2 minutes. A machine boots in 5
    minutes. The simulation starts job 7 before the machine is ready, so no machine is ordered.
    """

    def __init__(
        self,
        engine: str,
        options: PoolOptions,
        fleet: Fleet,
        budget: Budget,
        back_off: BackOff,
        simulate: Simulate,
        labels: Mapping[str, str],
        taints: tuple[Taint, ...],
        now: Callable[[], float],
    ) -> None:
        """`labels` and `taints` are those of all nodes of the engine."""
        self.refused = ""
        """Why the last search ordered no machine."""
        self._engine = engine
        self._options = options
        self._fleet = fleet
        self._budget = budget
        self._back_off = back_off
        self._simulate = simulate
        self._labels = labels
        self._taints = taints
        self._now = now

    async def search(self, offers: tuple[Offer, ...]) -> int:
        """Order the machines that waiting jobs need. Return their number."""
        room = self._room()
        if room <= 0:
            self.refused = "all machines that may be ordered are ordered"
            return 0
        usable = self._usable(offers)
        if not usable:
            return 0
        pending = tuple(self._pending(offers))
        asked = tuple(self._nodes(offer, min(room, offer.most)) for offer in usable)
        answer = await self._simulate(pending, asked, self._options.forecast_s)
        if answer is None:
            self.refused = "the simulation was not ready in time"
            return 0
        found = [
            (self._cost(offer, demand), index)
            for index, (offer, demand) in enumerate(zip(usable, answer, strict=True))
            if demand.needed
        ]
        self.refused = "" if found else "no waiting job would start on a new machine"
        for _, index in sorted(found):
            ordered = await self._want(usable[index], answer[index])
            if ordered:
                return ordered
        return 0

    async def _want(self, offer: Offer, demand: Demand) -> int:
        now = self._now()
        for count in range(demand.needed):
            self.refused = self._budget.refusal(offer, demand.project, now)
            if self.refused:
                return count
            machine = await self._fleet.want(offer, demand.project, now)
            log.info(
                "engine %s: %s (%s %s) is wanted: %d waiting jobs would start",
                self._engine,
                machine.record.token,
                offer.shape,
                offer.zone,
                demand.jobs,
            )
        return demand.needed

    def _room(self) -> int:
        options = self._options
        unanswered = len(self._fleet.unanswered)
        return min(options.most - len(self._fleet.live), options.most_unanswered - unanswered)

    def _usable(self, offers: tuple[Offer, ...]) -> list[Offer]:
        now = self._now()
        free = [each for each in offers if not self._back_off.paused(each.shape, each.zone, now)]
        self.refused = "" if free else "all shapes are paused"
        usable = [each for each in free if not self._budget.refusal(each, "", now)]
        if free and not usable:
            self.refused = self._budget.refusal(free[0], "", now)
        usable.sort(key=lambda offer: (offer.price_per_hour, offer.ready_in_s))
        return usable[:MOST_SHAPES]

    def _pending(self, offers: tuple[Offer, ...]) -> list[HypotheticalNodes]:
        by_key = {(each.shape, each.zone): each for each in offers}
        found = [by_key.get((each.record.shape, each.record.zone)) for each in self._fleet.unanswered]
        return [self._nodes(offer, 1) for offer in found if offer is not None]

    def _nodes(self, offer: Offer, most: int) -> HypotheticalNodes:
        labels = {**offer.facts.labels, **self._labels}
        return HypotheticalNodes(offer.facts, labels, self._taints, offer.ready_in_s, most)

    def _cost(self, offer: Offer, demand: Demand) -> float:
        waiting = offer.ready_in_s / HOUR_S * self._options.wait_price
        return offer.price_per_hour * demand.needed / max(1, demand.jobs) + waiting
