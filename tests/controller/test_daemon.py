"""The daemon: reads are served under load, timers act, clocks may jump, a crash affects only its input."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from controller.core.backfill.cycle import Cycle
from controller.core.input_handlers.agent_reports import AgentReports
from controller.core.input_handlers.job_commands import JobCommands
from controller.core.invariants import find_violations
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.daemon.batches.cycle_timer import CLOCK_CHECK_S
from controller.nodes.link import LinkLost
from tests.controller.api.running_controller import PATIENCE_S, start_controller
from tests.controller.store.scratch import scratch
from tests.engine_harness import facts
from wire.agent.reports import AttemptStatus, GpuReport, GpuSample, Hello
from wire.job.spec import JobSpec
from wire.names import JobState, Reason


async def test_readers_are_answered_under_constant_inputs() -> None:
    async with start_controller() as api:
        daemon, held = api.daemon, JobSpec(command=("true",), hold=True)

        async def flood() -> None:
            while True:
                daemon.tell(job_inputs.Submit(held, "ada", ""))
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
        assert find_violations(daemon.state) == []


async def test_timed_changes_happen_without_inputs() -> None:
    """No user asks and no agent reports: the daemon wakes at the next time at which something is due."""
    async with start_controller() as api:
        await api.join("gpu01")
        later = await api.submit(gpus=8, begin_at=api.daemon.now() + 0.2)
        assert api.daemon.state.jobs[later].state is JobState.QUEUED
        await api.started(later)
        hopeless = await api.submit(gpus=8, deadline_at=api.daemon.now() + 0.2)
        await api.until(lambda: api.daemon.state.jobs[hopeless].state.terminal)
        _, shown = await api.get(f"/v1/jobs/{hopeless}")
        assert (shown["job"]["state"], shown["job"]["reason"]) == ("FAILED", "deadline")


class Clock:
    """A wall clock that was set to another time; the monotonic clock continues."""

    def __init__(self, set_to: float) -> None:
        self._ahead = set_to - time.time()

    def time(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic()


async def test_clock_set_back_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        await api.started(await api.submit())
        before = api.daemon.now()
        monkeypatch.setattr("controller.store.leader.store_leadership.time", Clock(time.time() - 3 * 3_600))
        later = await api.submit(begin_at=before + 0.2)
        await api.started(later)
        assert api.daemon.state.jobs[later].started_at >= before + 0.2
        monkeypatch.setattr("controller.store.leader.store_leadership.time", Clock(time.time() + 3 * 3_600))
        assert api.daemon.now() >= before + 3 * 3_600


async def test_clock_of_1970_continues_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage counts by its age, so its time must not be in the future."""
    fair = {"order": "fair"}
    with scratch() as home:
        async with start_controller(home, scheduler=fair) as api:
            await api.join("gpu01")
            job = await api.submit()
            await api.started(job)
            await api.ended(job)
            before = api.daemon.now()
        monkeypatch.setattr("controller.store.leader.store_leadership.time", Clock(0.0))
        async with start_controller(home, scheduler=fair) as api:
            await api.join("gpu01")
            again = await api.submit()
            await api.started(again)
            assert api.daemon.state.jobs[again].submitted_at >= before
            journal = await api.daemon.read(lambda: api.daemon.store.journal(0, 1_000))
            assert [entry.at for entry in journal] == sorted(entry.at for entry in journal)


async def test_data_dependency_is_checked_while_a_job_waits_for_it() -> None:
    """Symbolic links are followed, but not out of the allowed roots."""
    with scratch() as place:
        roots = {"data_roots": [str(place / "data")], "data_check_s": 0.1}
        (place / "data").mkdir()
        (place / "data" / "out").symlink_to("/")
        async with start_controller(scheduler={"waiting": roots}) as api:
            await api.join("gpu01")

            async def waiting(path: str) -> int:
                return await api.submit(after=[{"until": "data", "path": str(place / "data" / path)}])

            outside, inside = await waiting("out/etc"), await waiting("set/READY")
            (place / "data" / "set").mkdir()
            (place / "data" / "set" / "READY").touch()
            await api.placed(inside)
            assert api.daemon.state.jobs[outside].state is JobState.QUEUED


async def test_time_that_passed_during_downtime_is_handled_at_start() -> None:
    with scratch() as home:
        async with start_controller(home) as api:
            job = await api.submit(deadline_at=api.daemon.now() + 0.2)
        async with start_controller(home) as api:
            await api.until(lambda: api.daemon.state.jobs[job].state.terminal)
            assert api.daemon.state.jobs[job].reason is Reason.DEADLINE


async def test_locked_database_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.store.backends.sqlite.BUSY_S", 0)
    monkeypatch.setattr("controller.daemon.store_outage.STORE_RETRY_S", 0.01)
    async with start_controller() as api:
        await api.join("gpu01")
        first = await api.submit()
        path = api.daemon.config.state_dir / "corral.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"]}, "key": "k"})
                assert (status, problem["code"]) == (503, "busy")
                assert "locked" in problem["message"]
            assert (await api.get("/v1/health"))[1]["status"] == "database locked"
            assert set(api.daemon.state.jobs) == {first}
        while api.daemon.outage.problem:
            await asyncio.sleep(0.01)
        again = await api.submit(key="k")
        await api.join("gpu01")
        for job in (first, again):
            await api.started(job)


async def test_controller_stops_while_the_store_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API waits for the end of the commit while the database is still locked."""
    monkeypatch.setattr("controller.store.backends.sqlite.BUSY_S", 0)
    with scratch() as home, closing(sqlite3.connect(home / "corral.db", isolation_level=None)) as shell:
        async with asyncio.timeout(PATIENCE_S), start_controller(home) as api:
            await api.join("gpu01")
            shell.execute("BEGIN IMMEDIATE")
            status, _ = await api.post("/v1/jobs", {"spec": {"command": ["true"]}})
            assert status == 503
            api.daemon.tell(job_inputs.Submit(JobSpec(command=("true",)), "ada", ""))


@dataclass
class Bug:
    """A crash in the engine for matching inputs, after the state has been changed."""

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


async def test_input_that_crashes_the_engine_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests arrived in one batch, and one of them made the engine fail halfway."""
    Bug(monkeypatch).plant(JobCommands, "submit", lambda given: given.spec.name == "bug")
    async with start_controller(bugs=True) as api:
        await api.join("gpu01")
        bodies = [{"spec": {"command": ["true"], "name": name}} for name in ("a", "b", "bug", "c", "d")]
        answers = await asyncio.gather(*(api.post("/v1/jobs", body) for body in bodies))
        assert sorted(status for status, _ in answers) == [201, 201, 201, 201, 500]
        assert {job.spec.name for job in api.daemon.state.jobs.values()} == {"a", "b", "c", "d"}
        await api.join("gpu01")
        for job in list(api.daemon.state.jobs):
            await api.started(job)
            await api.ended(job)
        assert (await api.daemon.read(api.daemon.store.verify)).good


async def test_report_that_crashes_the_engine_is_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = Bug(monkeypatch)
    bug.plant(AgentReports, "on_attempt_report", lambda given: given.status.why == "bug")
    async with start_controller(bugs=True) as api:
        await api.join("gpu01")
        job = await api.submit()
        await api.started(job)
        api.daemon.tell(agent_inputs.AgentReported("gpu01", AttemptStatus(job, 1, 100, 1.0, 2.0, why="bug")))
        async with asyncio.timeout(PATIENCE_S):
            while not bug.met:
                await asyncio.sleep(0)
        assert (await api.get(f"/v1/jobs/{job}"))[1]["job"]["state"] == "RUNNING"
        told = AttemptStatus(job, 1, 100, 1.0)
        hello = Hello("gpu01", "0.1.0", "boot", "i", facts("gpu01"), (told,))
        await api.handle(agent_inputs.AgentSaidHello("gpu01", hello))
        await api.ended(job)
        assert api.daemon.state.jobs[job].state is JobState.COMPLETED


async def test_too_many_crashes_within_a_minute_stop_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bugs that are older than a minute do not count."""
    most = 6
    monkeypatch.setattr("controller.daemon.batches.quarantine.MAX_CRASHES_PER_MINUTE", most)
    Bug(monkeypatch).plant(JobCommands, "submit", lambda _: True)
    statuses: list[int] = []

    async def ask() -> None:
        async with start_controller(bugs=True) as api:
            daemon = api.daemon

            async def meet(times: int) -> None:
                for _ in range(times):
                    async with asyncio.timeout(PATIENCE_S):
                        statuses.append((await api.post("/v1/jobs", {"spec": {"command": ["true"]}}))[0])
                    if statuses[-1] == 503:
                        return

            while len(daemon.quarantine.crashes) < most:
                await meet(1)
            long_ago = [at - CLOCK_CHECK_S for at in daemon.quarantine.crashes]
            daemon.quarantine.crashes.clear()
            daemon.quarantine.crashes.extend(long_ago)
            await meet(2)
            assert set(statuses) == {500}
            await meet(most)

    with pytest.raises(ZeroDivisionError):
        await ask()
    assert statuses[-1] == 503


async def test_readings_of_a_silent_node_do_not_count() -> None:
    """The time in which the node is silent is neither idle time nor work."""
    async with start_controller(gpus={"idle_after_s": 3_600.0}) as api:
        await api.join("gpu01")
        daemon = api.daemon
        daemon.agents.on_frame("gpu01", GpuReport((GpuSample("GPU-gpu01-0", 0),)))
        assert "GPU-gpu01-0" in daemon.agents.idle_gpus.since("gpu01", daemon.now())
        daemon.agents.on_frame("gpu01", LinkLost("cable"))
        assert daemon.agents.idle_gpus.since("gpu01", daemon.now()) == {}
        await api.until(lambda: not daemon.state.nodes.by_name["gpu01"].up)


async def test_crash_without_an_input_stops_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller stops, because only a restart can help. Clients may repeat their requests."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        async with start_controller(bugs=True) as api:
            await api.join("gpu01")
            monkeypatch.setattr(Cycle, "run", broken)
            status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"]}})
            assert (status, problem["code"]) == (503, "stopping")

    with pytest.raises(ZeroDivisionError):
        await ask()
