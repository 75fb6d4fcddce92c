"""Retention in a running controller: the store stops growing, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.config import RetentionSection
from controller.core.model.inputs.job_inputs import Cancel
from controller.watchers import retention
from tests.controller.api.running_controller import RunningController, start_controller

FEW = RetentionSection(jobs=20, journal_entries=150)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retention, "LEAST", 25)
    monkeypatch.setattr(retention, "AT_ONCE", 7)
    monkeypatch.setattr(retention, "ENTRIES_AT_ONCE", 30)
    monkeypatch.setattr(retention, "SHARE", 1.0)
    return iter([None])


async def lives(api: RunningController, count: int) -> list[int]:
    """Submit jobs and cancel them."""
    jobs = []
    for number in range(count):
        jobs.append(await api.submit(name=f"n{number}", hold=True))
        await api.daemon.ask(Cancel(jobs[-1], "root"))
    return jobs


async def test_store_stops_growing_and_loads_at_the_next_start(tmp_path: Path) -> None:
    sizes = []
    async with start_controller(tmp_path, controller={"keep_ended": 5}) as api:
        waiting = await api.submit(hold=True)
        for _ in range(6):
            await lives(api, 75)
            await api.daemon.retention.enforce(FEW, api.daemon.now())
            sizes.append((tmp_path / "corral.db").stat().st_size)
            _, page = await api.get("/v1/jobs?history=1")
            assert len(page["jobs"]) == 21
        assert sizes[-1] == sizes[2], sizes
        report = await api.daemon.read(api.daemon.store.verify)
        assert report.problems == ()
        assert report.begins > 500
        assert report.compared >= 20
        last = api.daemon.state.next_job
        _, events = await api.get("/v1/events?after=0")
        assert (events["begins"], events["events"][0]["seq"]) == (report.begins, report.begins + 1)
        status, refused = await api.get("/v1/stream?after=5")
        assert status == 409
        assert f"the journal begins after entry {report.begins};" in refused["message"]
    async with start_controller(tmp_path) as api:
        assert api.daemon.state.next_job == last
        assert await api.submit() == last
        assert api.daemon.state.jobs[waiting].held


async def test_submits_are_accepted_while_old_jobs_are_deleted(tmp_path: Path) -> None:
    async with start_controller(tmp_path) as api:
        await lives(api, 100)
        before = api.daemon.store.begins
        deleted = await api.daemon.retention.enforce(
            RetentionSection(jobs=1, journal_entries=100), api.daemon.now()
        )
        assert deleted.jobs == 99
        assert (before, deleted.entries) == (0, api.daemon.store.begins)
        again = await api.daemon.retention.enforce(RetentionSection(), api.daemon.now())
        assert (again.jobs, again.entries) == (0, 0)


async def test_newest_entries_stay_although_all_are_too_old(tmp_path: Path) -> None:
    tomorrow = RetentionSection(journal_days=1.0)
    async with start_controller(tmp_path) as api:
        await lives(api, 100)
        last = (await api.daemon.read(api.daemon.store.verify)).head.seq
        await api.daemon.retention.enforce(tomorrow, api.daemon.now() + 30 * retention.DAY_S)
        assert api.daemon.store.begins == last - retention.LEAST
        await api.daemon.retention.enforce(tomorrow, api.daemon.now() + 30 * retention.DAY_S)
        assert api.daemon.store.begins == last - retention.LEAST
