"""Runs one machine pool: the steps of its machines after each look, and the searches for waiting jobs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from controller.engines.contract import EngineUnavailable, Offer
from controller.engines.driver.request_runner import RequestRunner
from controller.engines.pools.back_off import BackOff
from controller.engines.pools.budget import Budget
from controller.engines.pools.keeper import Keeper, PoolNodes
from controller.engines.pools.machine_records import Stage
from controller.engines.pools.pool_engine import PoolEngine
from controller.engines.pools.scale_out import ScaleOut

log = logging.getLogger("corral.engines")


class PoolDriver:
    """Runs the steps of one machine pool. The driver of its engine runs beside it, and makes the looks.

    1. Wait for the next interval. Do nothing while another controller may lead, or before the first look.
    2. Take each machine one step further (Keeper).
    3. Every `demand_s` seconds, if jobs wait and the engine is neither drained nor failing, search for
       waiting jobs that would start on a new machine (ScaleOut).
    """

    def __init__(
        self,
        engine: PoolEngine,
        nodes: PoolNodes,
        runner: RequestRunner,
        out: Callable[[Budget, BackOff], ScaleOut],
        may_act: Callable[[], bool],
        wanted: Callable[[], bool],
    ) -> None:
        """`wanted` returns whether jobs wait and the engine may order machines."""
        self.engine = engine
        self.fleet = engine.fleet
        self.budget = Budget(engine.options, engine.fleet)
        self.back_off = BackOff(engine.options.back_off_s)
        self.keeper = Keeper(
            engine.scope.name,
            engine.pool,
            engine.options,
            engine.fleet,
            self.budget,
            self.back_off,
            nodes,
            runner,
            engine.scope.interval_s,
            engine.scope.now,
        )
        self.out = out(self.budget, self.back_off)
        self._runner = runner
        self._may_act = may_act
        self._wanted = wanted
        self._now = engine.scope.now
        self.offers: tuple[Offer, ...] = ()
        """The last offers that the pool has named."""
        self._searched_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"pool {self.engine.scope.name}"
        )

    async def close(self) -> None:
        """Stop. Machines continue, and the next controller finds their records."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except Exception:
                log.exception("engine %s: a round of the pool failed", self.engine.scope.name)
            await asyncio.sleep(self.engine.scope.interval_s)

    async def round(self) -> None:
        """Do steps 2 and 3. Do nothing while another controller may lead, or before the first look."""
        if not self._may_act() or not self.engine.looks:
            return
        try:
            self.offers = await self._runner.answer(self.engine.pool.offers())
        except (EngineUnavailable, TimeoutError) as error:
            log.warning(
                "engine %s: no offers: %s", self.engine.scope.name, self._runner.reason(error, "offers")
            )
        await self.keeper.round({(each.shape, each.zone): each for each in self.offers})
        now = self._now()
        if self._wanted() and now - self._searched_at >= self.engine.options.demand_s:
            self._searched_at = now
            if await self.out.search(self.offers):
                await self.keeper.round({(each.shape, each.zone): each for each in self.offers})

    def stages(self) -> Counter[Stage]:
        """Return the number of machines in each stage, without the machines that have ended."""
        return Counter(each.record.stage for each in self.fleet.live)
