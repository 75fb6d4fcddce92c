"""Budgets through the API, in metrics and in scheduler.toml."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.config import Config
from controller.registry.budgets import calendar_of
from tests.controller.api.running_controller import start_controller
from tests.controller.api.service.test_metrics import figures


async def test_budgets_are_reported_and_stop_jobs() -> None:
    projects = {
        "llm": {"budget": {"gpu_hours": 1000.0, "money": 50.0}},
        "vision": {"budget": {"gpu_hours": 0.0, "then": "stop"}},
    }
    prices = {"gpu_hour": 2.0, "currency": "EUR"}
    async with start_controller(projects=projects, budgets=prices) as api:
        await api.join("gpu01", gpus=8)
        await api.placed(await api.submit(gpus=2, project="llm"))
        waiting = await api.submit(gpus=1, project="vision")
        status, body = await api.get("/v1/reports/budgets")
        assert status == 200, body
        llm, vision = body["budgets"]
        assert (llm["project"], llm["gpu_hours_limit"], llm["money_limit"]) == ("llm", 1000, 50)
        assert (llm["then"], llm["currency"]) == ("alert", "EUR")
        assert (vision["percent"], vision["then"]) == (100, "stop")
        _, answer = await api.get(f"/v1/jobs/{waiting}")
        assert "the budget of project 'vision'" in answer["why"]["sentence"]
        _, quotas = await api.get("/v1/quotas")
        texts = {each["name"]: each["budget"] for each in quotas["quotas"] if each["scope"] == "project"}
        assert texts["llm"].endswith("of 50.00 EUR")
        found = await figures(api)
        assert found['corral_budget_used_percent{project="vision"}'] == 100


@pytest.mark.parametrize(
    "project",
    [
        {"carry_over": 0.5},
        {"gpu_hours": -1.0},
        {"gpu_hours": 1.0, "carry_over": 2.0},
        {"gpu_hours": 1.0, "then": "pause"},
    ],
)
def test_invalid_budgets_are_refused(project: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="budget"):
        Config.model_validate({"projects": {"llm": {"budget": project}}})


def test_months_begin_at_midnight_of_their_time_zone() -> None:
    berlin, utc = calendar_of("Europe/Berlin"), calendar_of("UTC")
    for at in (datetime(2026, 7, 31, 22, 30, tzinfo=UTC), datetime(2026, 10, 31, 23, 30, tzinfo=UTC)):
        here, there = (each.name(each.index(at.timestamp())) for each in (berlin, utc))
        assert here > there
    assert utc.start(utc.index(datetime(2026, 11, 19, tzinfo=UTC).timestamp())) == (
        datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    )
