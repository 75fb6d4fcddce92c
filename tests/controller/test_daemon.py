"""What the landing promises to those who only look."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from controller.core import inputs
from controller.core.check import check
from tests.controller.api.house import living
from tests.controller.store.scratch import scratch
from wire.spec import JobSpec
from wire.words import JobState, Reason

PATIENCE_S = 60.0


async def test_who_reads_gets_his_turn_though_there_is_always_more_to_decide() -> None:
    async with living() as house:
        daemon, held = house.daemon, JobSpec(command=("true",), hold=True)

        async def flood() -> None:
            while True:
                daemon.tell(inputs.Submit(held, "ada", ""))
                await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        try:
            while daemon.seq < 100:
                async with asyncio.timeout(PATIENCE_S):
                    await daemon.settled()
                assert daemon.seq == len(daemon.state.jobs), "nothing is shown that is not on disk"
                await asyncio.sleep(0)
        finally:
            flooding.cancel()
        assert check(daemon.state) == []


async def test_what_is_due_happens_by_itself() -> None:
    """Nobody asks and nothing is reported: the next moment at which something is due wakes the daemon."""
    async with living() as house:
        await house.join("gpu01")
        later = await house.submit(gpus=8, begin_at=house.daemon.now() + 0.2)
        assert house.daemon.state.jobs[later].state is JobState.QUEUED
        await house.started(later)
        hopeless = await house.submit(gpus=8, deadline_at=house.daemon.now() + 0.2)
        await house.until(lambda: house.daemon.state.jobs[hopeless].state.terminal)
        _, shown = await house.get(f"/v1/jobs/{hopeless}")
        assert (shown["job"]["state"], shown["job"]["reason"]) == ("FAILED", "deadline")


class Clock:
    """The clock that people mean, set by somebody; the other one goes on."""

    def __init__(self, set_to: float) -> None:
        self._ahead = set_to - time.time()

    def time(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic()


async def test_a_clock_that_is_set_back_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with living() as house:
        await house.join("gpu01")
        await house.started(await house.submit())
        before = house.daemon.now()
        monkeypatch.setattr("controller.daemon.time", Clock(time.time() - 3 * 3_600))
        later = await house.submit(begin_at=before + 0.2)
        await house.started(later)
        assert house.daemon.state.jobs[later].started_at >= before + 0.2
        monkeypatch.setattr("controller.daemon.time", Clock(time.time() + 3 * 3_600))
        assert house.daemon.now() >= before + 3 * 3_600


async def test_a_host_that_starts_in_1970_goes_on_from_its_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used is weighed by how long ago that was: it must not lie in the future."""
    fair = {"order": "fair"}
    with scratch() as home:
        async with living(home, scheduler=fair) as house:
            await house.join("gpu01")
            job = await house.submit()
            await house.started(job)
            await house.ended(job)
            before = house.daemon.now()
        monkeypatch.setattr("controller.daemon.time", Clock(0.0))
        async with living(home, scheduler=fair) as house:
            await house.join("gpu01")
            again = await house.submit()
            await house.started(again)
            assert house.daemon.state.jobs[again].submitted_at >= before
            journal = await house.daemon.read(lambda: house.daemon.store.journal(0, 1_000))
            assert [entry.at for entry in journal] == sorted(entry.at for entry in journal)


async def test_data_is_looked_for_as_long_as_somebody_waits_for_it() -> None:
    """Through links too, but not out of what the operators allow."""
    with scratch() as place:
        roots = {"data_roots": [str(place / "data")], "data_check_s": 0.1}
        (place / "data").mkdir()
        (place / "data" / "out").symlink_to("/")
        async with living(scheduler={"waiting": roots}) as house:
            await house.join("gpu01")

            async def waiting(path: str) -> int:
                return await house.submit(after=[{"until": "data", "path": str(place / "data" / path)}])

            outside, inside = await waiting("out/etc"), await waiting("set/READY")
            (place / "data" / "set").mkdir()
            (place / "data" / "set" / "READY").touch()
            await house.placed(inside)
            assert house.daemon.state.jobs[outside].state is JobState.QUEUED


async def test_a_moment_that_passed_while_the_controller_was_down_is_not_forgotten() -> None:
    with scratch() as home:
        async with living(home) as house:
            job = await house.submit(deadline_at=house.daemon.now() + 0.2)
        async with living(home) as house:
            await house.until(lambda: house.daemon.state.jobs[job].state.terminal)
            assert house.daemon.state.jobs[job].reason is Reason.DEADLINE


async def test_a_locked_database_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.store.sqlite.BUSY_S", 0)
    monkeypatch.setattr("controller.daemon.HELD_PAUSE_S", 0.01)
    async with living() as house:
        await house.join("gpu01")
        first = await house.submit()
        path = house.daemon.config.state_dir / "corral.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                status, problem = await house.post("/v1/jobs", {"spec": {"command": ["true"]}, "key": "k"})
                assert (status, problem["code"]) == (503, "busy")
                assert "locked" in problem["message"]
            assert (await house.get("/v1/health"))[1]["status"] == "database locked"
            assert set(house.daemon.state.jobs) == {first}
        while house.daemon.trouble:
            await asyncio.sleep(0.01)
        again = await house.submit(key="k")
        await house.join("gpu01")
        for job in (first, again):
            await house.started(job)


async def test_who_is_told_to_stop_while_the_store_is_held_up_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The house waits for the end of the landing while the database is still locked."""
    monkeypatch.setattr("controller.store.sqlite.BUSY_S", 0)
    with scratch() as home, closing(sqlite3.connect(home / "corral.db", isolation_level=None)) as shell:
        async with asyncio.timeout(PATIENCE_S), living(home) as house:
            await house.join("gpu01")
            shell.execute("BEGIN IMMEDIATE")
            status, _ = await house.post("/v1/jobs", {"spec": {"command": ["true"]}})
            assert status == 503
            house.daemon.tell(inputs.Submit(JobSpec(command=("true",)), "ada", ""))
