"""Routes of execution engines: list, show, test, drain, resume."""

from __future__ import annotations

import asyncio
import time

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.engines.contract import EngineUnavailable
from controller.engines.driver.driver import EngineDriver
from controller.engines.pools.pool_driver import PoolDriver
from wire.api.nodes import NodeAction
from wire.api.service.engines import (
    EngineJob,
    EngineLimit,
    EngineList,
    EngineMachine,
    EnginePool,
    EngineTest,
    EngineView,
    PausedShape,
)


async def listing(call: Call) -> EngineList:
    """List all execution engines with their nodes, jobs and failures."""
    drivers = call.daemon.engines.drivers
    return EngineList(tuple(_view(call, drivers[name]) for name in sorted(drivers)), call.daemon.seq)


async def show(call: Call) -> EngineView:
    """Show one execution engine with its nodes, jobs and failures."""
    return _view(call, _named(call))


async def test(call: Call) -> EngineTest:
    """Ask an execution engine once for its nodes and jobs, and return how long the answer took."""
    driver = _named(call)
    began = time.monotonic()
    try:
        async with asyncio.timeout(driver.rules.timeout_s):
            seen = await driver.engine.look()
            limits = await driver.engine.limits()
    except TimeoutError:
        return EngineTest(driver.name, time.monotonic() - began, f"no answer in {driver.rules.timeout_s:g} s")
    except EngineUnavailable as error:
        return EngineTest(driver.name, time.monotonic() - began, str(error))
    found = tuple(EngineLimit(each.name, each.used, each.limit) for each in limits)
    took = time.monotonic() - began
    return EngineTest(driver.name, took, "", seen.complete, len(seen.nodes), len(seen.jobs), found)


async def drain(call: Call, body: NodeAction) -> EngineView:
    """Drain all nodes of an execution engine: the nodes get no new jobs, and running jobs continue."""
    driver = _named(call)
    driver.drain(body.why or f"drained by {call.caller.user}")
    return _view(call, driver)


async def resume(call: Call, _: NodeAction) -> EngineView:
    """End the drain of an execution engine, so that its nodes get new jobs."""
    driver = _named(call)
    driver.drain("")
    return _view(call, driver)


def _named(call: Call) -> EngineDriver:
    name, drivers = call.path["engine"], call.daemon.engines.drivers
    if name not in drivers:
        hint = "'corral engines list' shows all execution engines."
        raise rejected("not_found", f"there is no execution engine {name!r}", "engine", hint)
    return drivers[name]


def _view(call: Call, driver: EngineDriver) -> EngineView:
    pool = call.daemon.engines.pools.get(driver.name)
    jobs = tuple(
        EngineJob(
            each.record.job,
            each.record.attempt,
            each.record.node,
            each.presence.value,
            each.record.ref,
            f"{each.where}: {each.reason}" if each.where and each.reason else each.reason,
        )
        for each in driver.attempts
        if each.record.ended_at is None
    )
    return EngineView(
        driver.name,
        driver.type_name,
        tuple(kind.value for kind in driver.engine.caps.kinds),
        tuple(driver.nodes.names),
        len(jobs),
        sum(bool(each.reason) for each in jobs),
        driver.breaker.is_open,
        driver.breaker.failures,
        driver.breaker.why,
        driver.drained,
        driver.looked_at,
        driver.breaker.opened,
        driver.sweep.ended,
        jobs,
        None if pool is None else _pool(pool, call.daemon.now()),
    )


def _pool(pool: PoolDriver, now: float) -> EnginePool:
    machines = []
    for each in pool.fleet.live:
        record, node = each.record, pool.keeper.node_of(each)
        machines.append(
            EngineMachine(
                "" if node is None else node.name,
                record.ref,
                record.shape,
                record.zone,
                record.stage.value,
                record.price_per_hour,
                record.cost(0.0, now),
                record.wanted_at,
                record.project,
                record.ending or record.leaving or each.problem,
            )
        )
    return EnginePool(
        tuple(machines),
        pool.budget.spent_today(now),
        pool.engine.options.daily_cap,
        pool.keeper.ordered,
        pool.back_off.failures,
        pool.out.refused,
        tuple(PausedShape(*key, why) for key, why in sorted(pool.back_off.why.items())),
    )
