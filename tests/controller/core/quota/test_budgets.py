"""Budgets of projects per calendar month."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.events.tenants import BudgetReached
from controller.core.model.inputs import controller_inputs
from controller.core.model.job import NEVER
from controller.core.quota.budget_rules import Budget, BudgetAction, BudgetRules, Calendar
from controller.core.quota.budgets import BudgetStanding
from controller.core.quota.quota_config import QuotaConfig
from controller.core.state.job_and_node_rows import job_row, node_row, restore_state
from controller.core.state.note_rows import all_notes
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.gangs import Gang
from wire.names import JobState, Reason

HOUR, MONTH = 3_600.0, 100 * 3_600.0
CALENDAR = Calendar(tuple(index * MONTH for index in range(50)), 2026, 11)
"""Months of 100 hours; the first one is 2026-11."""


def harness_of(*, prices: dict[str, float] | None = None, **budgets: Budget) -> EngineHarness:
    """Node a has eight H100, node b eight A100. The time is 0."""
    rules = BudgetRules(budgets, 1.0, prices or {}, "EUR", CALENDAR)
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig(budgets=rules)), now=0.0)
    harness.join("a", model="H100")
    harness.join("b", model="A100")
    return harness


def run(harness: EngineHarness, gpus: float, **more: Any) -> int:
    """Submit a job of project vision and start it."""
    job = harness.submit(spec(gpus, project="vision", **more))
    harness.tick()
    harness.start(job)
    return job


def standing(harness: EngineHarness) -> BudgetStanding:
    found = harness.state.budgets.standing("vision", harness.now)
    assert found is not None
    return found


def alerts(harness: EngineHarness) -> list[tuple[float, str, int]]:
    return [(each.at, each.month, each.percent) for each in harness.events if isinstance(each, BudgetReached)]


def test_use_is_counted_from_the_start_to_the_end_of_each_member() -> None:
    harness = harness_of(vision=Budget(gpu_hours=1000, money=5000), prices={"H100": 3.0})
    job = run(harness, 4, gpu_models=("H100",))
    harness.submit(spec(2))  # a job of another project
    harness.now = 10 * HOUR
    assert (standing(harness).gpu_hours, standing(harness).money) == (40, 120)
    other = run(harness, 2, gpu_models=("A100",))
    harness.now = 20 * HOUR
    harness.exit(job)
    harness.now = 30 * HOUR
    harness.exit(other)
    harness.now = 40 * HOUR
    assert (standing(harness).gpu_hours, standing(harness).money) == (80 + 40, 240 + 40)
    assert standing(harness).text == "120 of 1,000 GPU-hours, 280.00 of 5,000.00 EUR"


def test_small_amounts_of_money_are_not_shown_as_zero() -> None:
    found = BudgetStanding("vision", "2026-11", 0.0, 0.0, 0.002, None, 0.04, "EUR")
    assert found.text == "0.002 of 0.04 EUR"


def test_alerts_come_when_the_part_is_reached_and_once_a_month() -> None:
    harness = harness_of(vision=Budget(gpu_hours=100))
    job = run(harness, 2)
    assert harness.engine.next_at == 40 * HOUR
    harness.tick_at(40 * HOUR)
    harness.tick_at(45 * HOUR)
    assert alerts(harness) == [(40 * HOUR, "2026-11", 80)]
    assert harness.engine.next_at == 50 * HOUR
    harness.tick_at(50 * HOUR)
    harness.tick_at(60 * HOUR)
    assert harness.engine.next_at == 100 * HOUR
    harness.tick_at(100 * HOUR)
    assert harness.engine.next_at == 140 * HOUR
    harness.tick_at(140 * HOUR)
    harness.exit(job)
    assert [each[1:] for each in alerts(harness)] == [("2026-11", 80), ("2026-11", 100), ("2026-12", 80)]
    assert standing(harness).gpu_hours == 80


def test_a_job_that_crosses_the_end_of_a_month_counts_for_both() -> None:
    harness = harness_of(vision=Budget(gpu_hours=1000))
    harness.now = 90 * HOUR
    job = run(harness, 1)
    harness.now = 230 * HOUR
    harness.exit(job)
    use = harness.state.budgets.uses["vision"]
    assert {name: each.gpu_s / HOUR for name, each in use.past.items()} == {"2026-11": 10, "2026-12": 100}
    assert standing(harness).gpu_hours == 30
    assert standing(harness).month == "2027-01"


@pytest.mark.parametrize(("used", "limit"), [(40, 125), (90, 110), (120, 100)])
def test_the_unused_part_is_carried_over(used: int, limit: float) -> None:
    harness = harness_of(vision=Budget(gpu_hours=100, carry_over=0.25))
    job = run(harness, 2)
    assert standing(harness).gpu_hours_limit == 100  # Nothing is known about the month before.
    harness.now = used / 2 * HOUR
    harness.exit(job)
    harness.now = 101 * HOUR
    assert standing(harness).gpu_hours_limit == limit


def test_jobs_wait_for_the_next_month_with_then_stop() -> None:
    harness = harness_of(vision=Budget(gpu_hours=100, then=BudgetAction.STOP))
    first = run(harness, 2)
    harness.tick_at(50 * HOUR)
    waiting, other = harness.submit(spec(1, project="vision")), harness.submit(spec(1))
    harness.tick()
    assert harness.job(first).state is JobState.RUNNING
    assert harness.job(other).state is JobState.SCHEDULED
    why = harness.why(waiting)
    assert why.reason is Reason.QUOTA
    assert why.sentence.startswith(
        "the budget of project 'vision' for 2026-11 is used up (100 of 100 GPU-hours): "
        "none of its jobs starts for another 2d02h"
    )
    assert harness.engine.next_at == 100 * HOUR
    assert forecast(fork(harness.engine), harness.now).starts[waiting].at == 100 * HOUR
    harness.tick_at(100 * HOUR)
    assert harness.job(waiting).state is JobState.SCHEDULED


def test_jobs_come_last_with_then_low() -> None:
    harness = harness_of(vision=Budget(money=10, then=BudgetAction.LOW))
    first = run(harness, 1)
    harness.tick_at(11 * HOUR)
    blocker = harness.submit(spec(16, nodes=2, priority=90, gang=Gang(mixed_models=True)))
    harness.exit(first)
    harness.tick()
    harness.start(blocker)
    low, other = harness.submit(spec(8, project="vision", priority=80)), harness.submit(spec(8, priority=10))
    more = harness.submit(spec(8, priority=10))
    assert "its project has used its budget (11 of" not in harness.why(low).sentence
    harness.exit(blocker)
    harness.tick()
    states = [harness.job(job).state for job in (low, other, more)]
    assert states == [JobState.QUEUED, JobState.SCHEDULED, JobState.SCHEDULED]
    assert any("its project has used its budget" in each for each in harness.why(low).notes)


def test_use_survives_a_restart_in_the_middle_of_a_job() -> None:
    harness = harness_of(vision=Budget(gpu_hours=100))
    job = run(harness, 2)
    harness.tick_at(40 * HOUR)
    again = EngineHarness(harness.engine.pipeline, harness.now)
    again.state.set_quota_config(again.pipeline.rules)  # as recovery does
    restore(again.state, harness)
    assert again.state.budgets.standing("vision", 45 * HOUR) == harness.state.budgets.standing(
        "vision", 45 * HOUR
    )
    assert [*again.state.budgets.due(45 * HOUR)] == []
    assert again.state.budgets.next_at == 50 * HOUR
    assert job in again.state.jobs


def restore(state: State, harness: EngineHarness) -> None:
    jobs = [job_row(job, with_spec=True) for job in harness.state.jobs.values()]
    restore_state(state, jobs, [node_row(node) for node in harness.state.nodes], all_notes(harness.state))


def test_a_new_configuration_keeps_the_use_and_its_prices() -> None:
    harness = harness_of(vision=Budget(money=100))
    run(harness, 1)
    harness.now = 10 * HOUR
    dearer = BudgetRules({"vision": Budget(money=200)}, 5.0, {}, "EUR", CALENDAR)
    pipeline = replace(PIPELINE, rules=QuotaConfig(budgets=dearer))
    harness.tell(controller_inputs.ApplyConfig("digest", "root", pipeline))
    assert standing(harness).money == 10
    harness.now = 12 * HOUR
    assert (standing(harness).money, standing(harness).money_limit) == (20, 200)


def test_cpus_and_memory_cost_money_where_they_have_prices() -> None:
    rules = BudgetRules(
        {"vision": Budget(money=80)}, 1.0, {}, "EUR", CALENDAR, cpu_price=0.5, memory_price=0.25
    )
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig(budgets=rules)), now=0.0)
    harness.join("a", model="H100")
    job = run(harness, 0, cpu_milli=2_000, memory_mib=4_096)
    assert harness.state.budgets.next_at == 32 * HOUR  # 80 % of 80 EUR at 2 EUR an hour
    harness.now = 10 * HOUR
    run(harness, 1, cpu_milli=1_000, memory_mib=2_048)
    harness.now = 12 * HOUR
    assert (standing(harness).gpu_hours, standing(harness).money) == (2, 12 * 2 + 2 * 2)
    harness.exit(job)
    harness.now = 14 * HOUR
    assert standing(harness).money == 12 * 2 + 4 * 2


def test_cpus_and_memory_without_prices_set_no_timer() -> None:
    harness = harness_of(vision=Budget(money=80))
    run(harness, 0)
    harness.now = 10 * HOUR
    assert standing(harness).money == 0
    assert harness.state.budgets.next_at == NEVER


def test_a_new_budget_counts_running_jobs_from_their_start() -> None:
    harness = harness_of()
    run(harness, 2)
    harness.now = 10 * HOUR
    rules = BudgetRules({"vision": Budget(gpu_hours=100)}, calendar=CALENDAR)
    pipeline = replace(PIPELINE, rules=QuotaConfig(budgets=rules))
    harness.tell(controller_inputs.ApplyConfig("digest", "root", pipeline))
    assert standing(harness).gpu_hours == 20
