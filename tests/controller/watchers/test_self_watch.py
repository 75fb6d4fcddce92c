"""The controller notices its own overdue cycles, long commits and blocked event loop, and shows them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from controller.api.handlers.service import cluster
from controller.watchers import pulse, self_watch
from controller.watchers.counters import ControllerCounters
from controller.watchers.self_watch import SelfWatch
from tests.controller.api.running_controller import RunningController, start_controller
from tests.limits import PATIENCE_S


async def ready(api: RunningController) -> tuple[int, str]:
    async with api.session.get("http://corral/readyz") as response:
        return response.status, await response.text()


async def until(true: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.02)


async def test_commit_that_hangs_is_shown_and_forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_watch, "COMMIT_S", 0.2)
    monkeypatch.setattr(cluster, "LATE_S", 0.2)
    monkeypatch.setattr(pulse, "LONGEST_COMMIT_S", 0.2)
    async with start_controller() as api:
        assert await ready(api) == (200, "ok\n")
        commit, may_commit = api.daemon.store.commit, threading.Event()

        def slow(*arguments: Any) -> Any:
            may_commit.wait(PATIENCE_S)
            return commit(*arguments)

        async def shows_alarm() -> bool:
            status, text = await ready(api)
            assert (status, text) in ((200, "ok\n"), (503, "not ready\n"))
            return status == 503

        sample = api.daemon.subscribe(pulse=True)
        await asyncio.wait_for(anext(sample), PATIENCE_S)
        monkeypatch.setattr(api.daemon.store, "commit", slow)
        submit = asyncio.create_task(api.submit("true"))
        try:
            await until(shows_alarm)
            _, health = await api.get("/v1/health")
            assert "a commit to the store" in health["status"]
            assert "a commit to the store" in health["alarms"][0]
            async with api.session.get("http://corral/metrics") as response:
                lines = (await response.text()).splitlines()
            [age] = [line for line in lines if line.startswith("corral_commit_age_seconds ")]
            assert float(age.split()[1]) > 0.2

            async def stream_has_alarm() -> bool:
                commit = await anext(sample)
                return commit.pulse is not None and bool(commit.pulse.alarms)

            await until(stream_has_alarm)
        finally:
            may_commit.set()
        await submit

        async def works() -> bool:
            return await ready(api) == (200, "ok\n")

        await until(works)
        assert (await api.get("/v1/health"))[1]["alarms"] == []


async def test_blocked_event_loop_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_watch, "EVERY_S", 0.01)
    monkeypatch.setattr(self_watch, "LAG_S", 0.2)
    watch = SelfWatch(ControllerCounters(), lambda: False)
    watch.open()

    async def measured() -> bool:
        await asyncio.sleep(0)
        time.sleep(0.4)
        await asyncio.sleep(0.02)
        return watch.lag_s > 0.2

    await until(measured)
    watch.close()
    assert "did not react" in watch.alarms[0]
    assert watch.stuck == ""


def test_cycle_that_is_due_and_does_not_run_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_watch, "CYCLE_OVERDUE_S", 0.0)
    counters, due = ControllerCounters(), [True]
    watch = SelfWatch(counters, lambda: due[0])
    for _ in range(3):
        watch.measure(0.0)
        counters.passed(0.0, 0.001, 1)
    assert watch.stuck == ""
    watch.measure(0.0)
    watch.measure(0.0)
    assert "a scheduling cycle is due" in watch.stuck
    due[0] = False
    watch.measure(0.0)
    assert (watch.stuck, watch.cycle_overdue_s) == ("", 0.0)
