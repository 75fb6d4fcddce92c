"""Inputs that are made at intervals: they reach the engine, and a failed search does not end the searches."""

from __future__ import annotations

import asyncio

import pytest

from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.store.errors import StoreUnavailable
from controller.watchers.periodic_inputs import PeriodicInputs

LIMIT_S = 10.0


async def test_search_goes_on_after_errors(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Exception | None] = [StoreUnavailable("no", "wait"), RuntimeError("a bug"), None]
    arrived: asyncio.Queue[Input] = asyncio.Queue()

    async def find() -> list[Input]:
        failure = outcomes.pop(0) if outcomes else None
        if failure is not None:
            raise failure
        return [Tick()]

    periodic = PeriodicInputs("waits", 0.001, find, arrived.put_nowait)
    periodic.open()
    assert await asyncio.wait_for(arrived.get(), LIMIT_S) == Tick()
    periodic.close()
    assert outcomes == []
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("a bug",)]


async def test_interval_of_zero_makes_no_inputs_until_it_is_changed() -> None:
    arrived: asyncio.Queue[Input] = asyncio.Queue()

    async def find() -> list[Input]:
        return [Tick()]

    periodic = PeriodicInputs("starts", 0.0, find, arrived.put_nowait)
    periodic.open()
    assert periodic._task is None
    periodic.reconfigure(0.001)
    assert await asyncio.wait_for(arrived.get(), LIMIT_S) == Tick()
    periodic.reconfigure(0.0)
    await asyncio.sleep(0)  # The cancelled task ends.
    assert all(task.done() for task in asyncio.all_tasks() if task is not asyncio.current_task())
