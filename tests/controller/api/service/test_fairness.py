"""Reports and metrics on fairness and idle GPU-hours, through the API and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.core.accounting import cluster_accounting, wait_alarms
from controller.daemon import background_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.service.test_metrics import figures


async def test_fairness_by_project_and_user(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    first = await api.submit(gpus=8, project="llm")
    await api.placed(first)
    waiting = await api.submit(gpus=4, project="vision")
    status, body = await api.get("/v1/reports/fairness")
    assert status == 200, body
    assert (body["by"], {row["name"] for row in body["rows"]}) == ("project", {"llm", "vision"})
    [vision] = (row for row in body["rows"] if row["name"] == "vision")
    assert (vision["longest_waiting"], vision["got"], vision["judgement"]) == (str(waiting), 0.0, "")
    assert 0 < vision["entitled"] <= body["capacity"]
    status, body = await api.get("/v1/reports/fairness?by=user&since=0")
    assert status == 200, body
    assert [row["started"] for row in body["rows"]] == [1]
    assert (await api.get("/v1/reports/fairness?by=queue"))[0] == 400


async def test_idle_gpu_hours_by_cause_and_their_metrics(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    await api.placed(await api.submit(gpus=2, project="llm"))
    status, body = await api.get("/v1/reports/waste?since=0")
    assert status == 200, body
    [idle] = body["idle"]
    assert (idle["cause"], idle["avoidable"], body["lost"]) == ("no job waits", False, [])
    assert abs(body["used"] + idle["gpu_hours"] - body["gpu_hours"]) < 1e-3
    found = await figures(api)
    assert found['corral_idle_gpu_hours{cause="no job waits"}'] > 0
    assert found['corral_project_gpu_hours{project="llm",kind="got"}'] > 0
    assert found['corral_project_longest_wait_seconds{project="llm"}'] == 0


async def test_figures_survive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_accounting, "SAVE_S", 0.0)
    async with start_controller(tmp_path) as api:
        await api.join("gpu01", gpus=8)
        await api.placed(await api.submit(gpus=8, project="llm"))
        _, before = await api.get("/v1/reports/waste?since=0")
        assert before["used"] > 0
        # The next commit writes the figures.
        await api.submit(gpus=8, project="llm")
    async with start_controller(tmp_path) as api:
        _, after = await api.get("/v1/reports/waste?since=0")
        assert after["used"] >= before["used"]
        _, body = await api.get("/v1/reports/fairness?since=0")
        assert [row["name"] for row in body["rows"]] == ["llm"]


async def test_job_that_waits_much_longer_than_usual_gives_one_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_alarms, "LEAST_S", 0.0)
    monkeypatch.setattr(background_inputs, "LONG_WAITS_S", 0.05)
    async with start_controller() as api:
        await api.join("gpu01", gpus=8)
        await api.placed(await api.submit(gpus=8))
        waiting = await api.submit(gpus=8)
        await api.until(lambda: api.daemon.state.jobs[waiting].wait.alarmed)
        assert (await api.get(f"/v1/jobs/{waiting}"))[1]["job"]["waits_long"]
        _, body = await api.get("/v1/cluster")
        assert body["wait_alarms"] == 1
        assert (await figures(api))["corral_wait_alarms"] == 1
        _, body = await api.get("/v1/events", job=waiting)
        assert [event["kind"] for event in body["events"]].count("WaitAlarmed") == 1
