"""The monthly report and the report on targets for waits, through the API."""

from __future__ import annotations

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.service.test_usage import ran
from tests.limits import PATIENCE_S
from wire.agent.reports import GpuUse

PRICES = {"currency": "EUR", "gpu_hour": 2.0, "gpu_hour_per_model": {"H100": 7_200_000.0}}


async def test_month_is_summed_by_model_and_priced() -> None:
    async with start_controller(budgets=PRICES) as api:
        await api.join("gpu01", gpus=8)
        await ran(api, 2, GpuUse(25.0, 95, 70_000, 12.5), project="vision")
        await ran(api, 1, None, project="speech")
        await ran(api, 0, None, project="speech")
        model = api.daemon.state.nodes.by_name["gpu01"].facts.gpus[0].model
        price = api.daemon.state.budgets.rules.price_of(model)
        status, month = await api.get("/v1/reports/month")
        _, usage = await api.get("/v1/usage", by="project")
        _, by_user = await api.get("/v1/reports/month", by="user", project="vision")
        _, by_queue = await api.get("/v1/reports/month", by="queue")
    assert status == 200, month
    rows = {each["name"]: each for each in month["rows"]}
    assert {name: each["jobs"] for name, each in rows.items()} == {"vision": 1, "speech": 2}
    vision = rows["vision"]
    assert vision["gpu_ms"] > 0
    assert [use["model"] for use in vision["models"]] == [model]
    assert vision["money"] == pytest.approx(vision["gpu_ms"] / 3_600_000 * price)
    # The job ran for milliseconds, so whole milliseconds show its load of 25 % only roughly.
    assert vision["utilisation"] == pytest.approx(25.0, abs=0.1 + 100 / vision["gpu_ms"])
    idle_hours = vision["gpu_hours"] * (1 - vision["utilisation"] / 100)
    assert vision["idle_gpu_hours"] == pytest.approx(idle_hours, rel=0.01)
    assert (vision["wait_p50_s"], vision["wait_p95_s"]) == (0.0, 0.0)
    assert month["gpu_ms"] == sum(each["gpu_ms"] for each in month["rows"]) == by_queue["gpu_ms"]
    for each in usage["usage"]:
        assert rows[each["name"]]["gpu_hours"] == pytest.approx(each["gpu_hours"], abs=1e-4)
    assert by_user["gpu_ms"] == vision["gpu_ms"]
    assert (month["currency"], month["by"], len(by_queue["rows"])) == ("EUR", "project", 1)


async def test_cpus_and_memory_are_billed_where_they_have_prices() -> None:
    prices = {"currency": "EUR", "gpu_hour": 2.0, "cpu_hour": 3_600_000.0, "memory_gib_hour": 36_000.0}
    async with start_controller(budgets=prices) as api:
        await api.join("gpu01", gpus=8)
        await ran(api, 0, None, project="speech", cpu_milli=4_000, memory_mib=4_096)
        await ran(api, 1, None, project="vision", cpu_milli=1_000, memory_mib=1_024)
        _, month = await api.get("/v1/reports/month")
        _, by_user = await api.get("/v1/reports/month", by="user")
        _, usage = await api.get("/v1/usage", by="project")
        _, of_jobs = await api.get("/v1/usage", by="job")
    rows = {each["name"]: each for each in month["rows"]}
    speech = rows["speech"]
    assert speech["cpu_money"] == pytest.approx(speech["cpu_ms"])
    assert speech["cpu_hours_used"] * 3_600 == pytest.approx(3.6)
    assert speech["memory_money"] == pytest.approx(speech["memory_gib_hours"] * 36_000)
    assert speech["money"] == pytest.approx(speech["cpu_money"] + speech["memory_money"])
    assert speech["gpu_ms"] == 0
    assert month["cpu_ms"] == speech["cpu_ms"] + rows["vision"]["cpu_ms"] == by_user["cpu_ms"] > 0
    assert month["money"] == by_user["money"] == pytest.approx(sum(each["money"] for each in month["rows"]))
    assert (month["cpu_price"], month["memory_price"]) == (3_600_000.0, 36_000.0)
    assert {each["name"]: each["money"] for each in usage["usage"]} == {
        name: row["money"] for name, row in rows.items()
    }
    assert usage["currency"] == "EUR"
    assert sum(each["money"] for each in of_jobs["usage"]) == pytest.approx(month["money"])


async def test_usage_has_no_money_without_prices() -> None:
    async with start_controller() as api:
        await api.join("gpu01", gpus=8)
        await ran(api, 1, None)
        _, usage = await api.get("/v1/usage")
        _, month = await api.get("/v1/reports/month")
    assert [each["money"] for each in usage["usage"]] == [None]
    assert (month["money"], month["cpu_price"]) == (0.0, 0.0)
    assert month["cpu_ms"] > 0


async def test_months_begin_in_the_time_zone_of_the_site() -> None:
    async with start_controller(scheduler={"time_zone": "Asia/Tokyo"}) as api:
        _, month = await api.get("/v1/reports/month", month="2026-12")
        assert month["since"] == datetime(2026, 12, 1, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp()
        assert month["until"] == datetime(2027, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp()
        assert (month["rows"], month["gpu_ms"]) == ([], 0)
        for wrong in ("2026-13", "november", "9999-01", "0001-01"):
            status, problem = await api.get("/v1/reports/month", month=wrong)
            assert (status, problem["where"]) == (400, "month"), wrong


async def test_sla_shows_the_part_of_the_jobs_that_started_in_time() -> None:
    async with start_controller(queues={"short": {"wait_target_s": 0.001}, "long": {}}) as api:
        await api.join("gpu01", gpus=1)
        for _ in range(2):
            await ran(api, 1, None, queue="short")
        blocking = await api.submit(gpus=1, queue="long")
        await api.placed(blocking)
        late = await api.submit(gpus=1, queue="short")
        figures = api.daemon.accounting.periods.at(api.daemon.now()).queues["short"]
        figures.in_target = 1  # The clock of the test decides how many of both were in time.
        async with asyncio.timeout(PATIENCE_S):
            row = {"waiting_longer": 0}
            while not row["waiting_longer"]:  # until the job has waited longer than the target
                _, report = await api.get("/v1/reports/sla")
                [row] = report["rows"]
        assert (row["queue"], row["target_s"], row["started"], row["in_target"]) == ("short", 0.001, 2, 1)
        assert (row["met_percent"], row["waiting_longer"]) == (50.0, 1)
        await api.started(blocking)
        await api.ended(blocking)
        await api.placed(late)
        assert figures.with_target == 3


async def test_sla_is_empty_without_targets(api: RunningController) -> None:
    assert (await api.get("/v1/reports/sla"))[1]["rows"] == []


async def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    async with start_controller(projects={"vision": {}, "speech": {}}) as api:
        for report in ("/v1/reports/month", "/v1/usage"):
            assert (await api.get(report, project="vision"))[0] == 200
            status, refused = await api.get(report, project="vison")
            assert status == 404
            assert "there is no project 'vison'" in refused["message"]
            assert "vision" in refused["hint"]
