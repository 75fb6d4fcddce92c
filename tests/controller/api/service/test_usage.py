"""GPU-hours, utilisation and energy through the API, by tenant and window."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controller.core.model.inputs import agent_inputs
from controller.user_turns import UserTurns
from tests.controller.api.running_controller import RunningController, start_controller
from wire.agent.reports import AttemptStatus, AttemptUse, GpuReport, GpuSample, GpuUse, HostUse, Usage


async def used(api: RunningController, by: str = "user", **window: int) -> dict[str, dict[str, Any]]:
    """The rows by name."""
    query = "&".join(f"{name}={value}" for name, value in {"by": by, **window}.items())
    status, body = await api.get(f"/v1/usage?{query}")
    assert status == 200, body
    return {row["name"]: row for row in body["usage"]}


async def ran(api: RunningController, gpus: float, use: GpuUse | None, **asked: Any) -> int:
    """A job that ran and ended."""
    job = await api.submit(gpus=gpus, **asked)
    await api.placed(job)
    [node] = api.daemon.state.jobs[job].members
    for status in (
        AttemptStatus(job, 1, 9, 1.0),
        AttemptStatus(job, 1, 9, 1.0, 2.0, 0, usage=Usage(3.6, 10, use)),
    ):
        await api.handle(agent_inputs.AgentReported(node, status))
    return job


async def test_usage_is_summed_by_the_requested_key(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    one = await ran(api, 2, GpuUse(80.0, 95, 70_000, 12.5), project="vision")
    await ran(api, 1, GpuUse(20.0, 40, 10_000, 2.5), project="speech")
    await ran(api, 0, None, project="speech")
    by_project = await used(api, "project")
    assert {name: row["jobs"] for name, row in by_project.items()} == {"vision": 1, "speech": 2}
    assert (by_project["vision"]["utilisation"], by_project["vision"]["p95"]) == (80.0, 95)
    assert by_project["vision"]["energy_wh"] == 12.5
    assert by_project["speech"]["peak_mib"] == 10_000
    [everybody] = (await used(api)).values()
    assert everybody["energy_wh"] == 15.0
    assert 20.0 < everybody["utilisation"] <= 80.0
    assert set(await used(api, "job")) >= {str(one)}
    _, shown = await api.get(f"/v1/jobs/{one}")
    assert shown["job"]["use"] == {"mean": 80.0, "p95": 95, "peak_mib": 70_000, "wh": 12.5}


async def test_usage_counts_only_the_window(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    await ran(api, 2, GpuUse(80.0, 95, 70_000, 12.5))
    far = int(api.daemon.now()) + 10_000
    assert await used(api, since=far - 5_000, until=far) == {}
    assert await used(api, since=0, until=1_000) == {}


async def test_usage_of_running_jobs_counts_without_a_journal_entry(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    await ran(api, 1, GpuUse(20.0, 40, 10_000, 2.5))
    job, other = await api.submit(gpus=2), await api.submit(gpus=1)
    await api.started(job)
    await api.started(other)
    seq, daemon = api.daemon.seq, api.daemon
    answer = (
        AttemptUse(job, 1, GpuUse(80.0, 95, 70_000, 12.5), HostUse(7_200.0, 300, 900)),
        AttemptUse(other, 7, GpuUse(1.0, 2, 3, 4.0)),
    )
    assert daemon.agents.on_frame("gpu01", GpuReport((), answer)) == ""
    [everybody] = (await used(api)).values()
    assert (everybody["energy_wh"], everybody["peak_mib"], everybody["p95"]) == (15.0, 70_000, 95)
    by_job = await used(api, "job")
    assert by_job[str(job)]["utilisation"] == 80.0
    assert by_job[str(other)]["utilisation"] is None, "another attempt of it"
    for path in (f"/v1/jobs/{job}", "/v1/jobs"):
        _, body = await api.get(path)
        shown = body["job"] if "job" in body else next(each for each in body["jobs"] if each["id"] == job)
        assert shown["use"] == {"mean": 80.0, "p95": 95, "peak_mib": 70_000, "wh": 12.5}
        assert shown["host_use"] == {"cpu_s": 7_200.0, "memory_mib": 300, "peak_mib": 900}
    assert (by_job[str(job)]["cpu_hours"], by_job[str(job)]["memory_peak_mib"]) == (2.0, 900)
    assert daemon.seq == seq
    assert daemon.agents.on_frame("gpu01", GpuReport((GpuSample("x"),))) == ""
    assert (await used(api, "job"))[str(job)]["energy_wh"] == 12.5, "a report without use says nothing of it"
    await api.handle(
        agent_inputs.AgentReported(
            "gpu01",
            AttemptStatus(job, 1, 9, 1.0, 2.0, 0, usage=Usage(3.6, 10, GpuUse(60.0, 95, 71_000, 13.0), 800)),
        )
    )
    final = (await used(api, "job"))[str(job)]
    assert final["energy_wh"] == 13.0, "the final figures, once"
    assert (final["cpu_hours"], final["memory_peak_mib"]) == (0.001, 800)
    assert final["cpu_hours_held"] > 0
    assert final["memory_gib_hours"] > 0


@pytest.mark.parametrize("query", ["since=5&until=5", "by=planet", "since=-1"])
async def test_invalid_window_is_refused(api: RunningController, query: str) -> None:
    assert (await api.get(f"/v1/usage?{query}"))[0] == 400


async def test_default_window_is_a_week_and_a_limit_reports_the_total(
    api: RunningController,
) -> None:
    await api.join("gpu01", gpus=8)
    for project in ("vision", "speech", "robots"):
        await ran(api, 1, None, project=project)
    _, body = await api.get("/v1/usage?by=project&limit=2")
    assert body["until"] - body["since"] == 7 * 86_400
    assert (len(body["usage"]), body["total"]) == (2, 3)


async def test_usage_of_a_preempted_attempt_counts_and_survives_a_restart(tmp_path: Path) -> None:
    async with start_controller(tmp_path) as api:
        await api.join("gpu01", gpus=8)
        job = await api.submit(gpus=2)
        await api.started(job)
        assert (await api.post(f"/v1/jobs/{job}/preempt", {}))[0] == 200
        usage = Usage(3.6, 10, GpuUse(50.0, 60, 100, 7.0))
        status = AttemptStatus(job, 1, 9, 1.0, 2.0, None, 15, "preempted", usage=usage)
        await api.handle(agent_inputs.AgentReported("gpu01", status))
        async with asyncio.timeout(30):
            await api.until(lambda: api.daemon.state.jobs[job].attempt == 2)
        before = (await used(api))["root"]
        assert (before["jobs"], before["energy_wh"], before["peak_mib"]) == (1, 7.0, 100)
    async with start_controller(tmp_path) as api:
        await api.join("gpu01", gpus=8)
        after = (await used(api))["root"]
        assert (after["jobs"], after["energy_wh"], after["p95"]) == (1, 7.0, 60)
        assert after["gpu_hours"] >= before["gpu_hours"]


async def test_usage_reports_of_one_user_do_not_delay_another() -> None:
    turns, order, all_wait = UserTurns(1), [], asyncio.Event()

    async def ask(user: str) -> None:
        async with turns.turn(user):
            await all_wait.wait()
            order.append(user)

    many = [asyncio.create_task(ask("ada")) for _ in range(20)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(ask("bob")) for _ in range(2)]
    gone = asyncio.create_task(ask("eve"))
    await asyncio.sleep(0)
    gone.cancel()
    all_wait.set()
    await asyncio.gather(*many, *few)
    assert order[:5] == ["ada", "ada", "bob", "ada", "bob"]
    assert (order.count("ada"), order.count("eve")) == (20, 0)
