"""What the landing promises to those who only look."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from controller.core import inputs
from controller.core.check import check
from controller.core.clerk import Clerk
from controller.core.cycle import Cycle
from controller.core.listener import Listener
from tests.controller.api.house import living
from tests.controller.store.scratch import scratch
from tests.worlds import facts
from wire.frames import AttemptStatus, Hello
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


@dataclass
class Bug:
    """In the engine: whoever it is about is not dealt with, but only after the state has been changed."""

    monkeypatch: pytest.MonkeyPatch
    met: int = 0

    def plant(self, where: type, method: str, about: Callable[[Any], bool]) -> None:
        right = getattr(where, method)

        def wrong(this: Any, given: Any, now: float) -> Any:
            reply = right(this, given, now)
            if about(given):
                self.met += 1
                raise ZeroDivisionError
            return reply

        self.monkeypatch.setattr(where, method, wrong)


async def test_who_meets_a_bug_alone_pays_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All came in at once, and one of them made the engine fail halfway."""
    Bug(monkeypatch).plant(Clerk, "submit", lambda given: given.spec.name == "bug")
    async with living(bugs=True) as house:
        await house.join("gpu01")
        bodies = [{"spec": {"command": ["true"], "name": name}} for name in ("a", "b", "bug", "c", "d")]
        answers = await asyncio.gather(*(house.post("/v1/jobs", body) for body in bodies))
        assert sorted(status for status, _ in answers) == [201, 201, 201, 201, 500]
        assert {job.spec.name for job in house.daemon.state.jobs.values()} == {"a", "b", "c", "d"}
        await house.join("gpu01")
        for job in list(house.daemon.state.jobs):
            await house.started(job)
            await house.ended(job)
        assert (await house.daemon.read(house.daemon.store.verify)).good


async def test_what_an_agent_says_may_meet_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = Bug(monkeypatch)
    bug.plant(Listener, "reported", lambda given: given.status.why == "bug")
    async with living(bugs=True) as house:
        await house.join("gpu01")
        job = await house.submit()
        await house.started(job)
        house.daemon.tell(inputs.AgentReported("gpu01", AttemptStatus(job, 1, 100, 1.0, 2.0, why="bug")))
        while not bug.met:
            await asyncio.sleep(0)
        assert (await house.get(f"/v1/jobs/{job}"))[1]["job"]["state"] == "RUNNING"
        told = AttemptStatus(job, 1, 100, 1.0)
        hello = Hello("gpu01", "0.1.0", "boot", "i", facts("gpu01"), (told,))
        await house.told(inputs.AgentSaidHello("gpu01", hello))
        await house.ended(job)
        assert house.daemon.state.jobs[job].state is JobState.COMPLETED


async def test_a_bug_that_nobody_brought_stops_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another start is the only thing left to try; whoever asked may ask again."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        async with living(bugs=True) as house:
            await house.join("gpu01")
            monkeypatch.setattr(Cycle, "run", broken)
            status, problem = await house.post("/v1/jobs", {"spec": {"command": ["true"]}})
            assert (status, problem["code"]) == (503, "stopping")

    with pytest.raises(ZeroDivisionError):
        await ask()
