"""The sums of a report on billed time are exactly the sums of the usage records, and so is the money."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, insert, select

from controller.api.handlers.service.money import bill_of
from controller.core.model.rows import UsageRow
from controller.core.quota.budget_rules import BudgetRules
from controller.store import tables
from controller.store.billed_usage import BilledTime, billed
from controller.store.maintenance.retention import usage_by_day
from controller.store.usage import DAY_S
from tests.engine_harness import PIPELINE, EngineHarness
from tests.examples import examples

NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.floats(0.0, 3_000.0, allow_nan=False)
SINCE, UNTIL = 1_000.0, 2_000.0
Amounts = tuple[int, int, int, int]


@st.composite
def records(draw: st.DrawFn) -> list[UsageRow]:
    rows = []
    for number in range(draw(st.integers(0, 12))):
        since = draw(TIMES)
        until = since + draw(TIMES)
        gpu_s = draw(st.floats(0.0, 100_000.0))
        row = UsageRow(
            number // 2,
            1,
            f"{draw(NAMES)}{number}",
            str(number // 2),
            *(draw(NAMES), draw(NAMES), draw(NAMES)),
            *(since, until, gpu_s, gpu_s, gpu_s / 2),
            *(0, 0, 0.0, 0.0),
        )
        row = replace(
            row,
            cpu_s=draw(st.floats(0.0, 90_000.0)),
            cpu_held_s=draw(st.floats(0.0, 90_000.0)),
            memory_held_s=draw(st.floats(0.0, 1e9)),
        )
        rows.append(row)
    return rows


def database() -> Engine:
    """An empty database in memory."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine, [tables.usage, tables.usage_days])
    return engine


def part_in_window(begin: float, end: float) -> float:
    """The part of a time that is inside the window."""
    if end < SINCE or begin >= UNTIL:
        return 0.0
    return (min(end, UNTIL) - max(begin, SINCE)) / (end - begin) if end > begin else 1.0


def amounts(row: Any, part: float) -> Amounts:
    """GPU time and CPU time (allocated, used) in milliseconds, and memory in MiB times seconds, of a row."""
    if part <= 0:
        return 0, 0, 0, 0
    figures = row.gpu_s * part * 1_000, row.cpu_held_s * part * 1_000, row.cpu_s * part * 1_000
    gpu, cpu, used, memory = (math.floor(each + 0.5) for each in (*figures, row.memory_held_s * part))
    return gpu, cpu, used, memory


def of_record(row: UsageRow) -> Amounts:
    return amounts(row, part_in_window(row.since, row.until))


def total(rows: Iterable[Amounts]) -> Amounts:
    gpu, cpu, used, memory = (sum(column) for column in zip(*rows, (0, 0, 0, 0), strict=True))
    return gpu, cpu, used, memory


def billed_amounts(each: BilledTime) -> Amounts:
    return each.gpu_ms, each.cpu_ms, each.cpu_used_ms, each.memory_mib_s


@settings(max_examples=examples(60))
@given(ended=records(), running=records())
def test_sums_of_the_report_are_those_of_the_records(ended: list[UsageRow], running: list[UsageRow]) -> None:
    for by in ("user", "project", "queue"):
        with database().begin() as connection:
            if ended:
                connection.execute(insert(tables.usage), [asdict(row) for row in ended])
            times, jobs = billed(connection, by, SINCE, UNTIL, {}, running)
        assert all(isinstance(figure, int) for each in times for figure in billed_amounts(each))
        for name in jobs:
            expected = [of_record(row) for row in [*ended, *running] if getattr(row, by) == name]
            assert total(billed_amounts(each) for each in times if each.name == name) == total(expected)
        assert total(map(billed_amounts, times)) == total(of_record(row) for row in [*ended, *running])
        assert {*jobs} == {each.name for each in times}
    if ended:
        only: dict[str, Any] = {"project": ended[0].project}
        with database().begin() as connection:
            connection.execute(insert(tables.usage), [asdict(row) for row in ended])
            times, _ = billed(connection, "user", SINCE, UNTIL, only, [])
        wanted = [row for row in ended if row.project == only["project"]]
        assert total(map(billed_amounts, times)) == total(map(of_record, wanted))


@settings(max_examples=examples(60))
@given(deleted=records(), ended=records(), prices=st.tuples(*[st.decimals(0, 9, places=3).map(float)] * 3))
def test_reports_of_deleted_jobs_cost_the_same_by_user_project_and_queue(
    deleted: list[UsageRow], ended: list[UsageRow], prices: tuple[float, float, float]
) -> None:
    state = EngineHarness(PIPELINE).state
    gpu_price, cpu_price, memory_price = prices
    state.budgets.rules = BudgetRules(price=gpu_price, cpu_price=cpu_price, memory_price=memory_price)
    with database().begin() as connection:
        if days := usage_by_day([asdict(row) for row in deleted]):
            connection.execute(insert(tables.usage_days), days)
        if ended:
            connection.execute(insert(tables.usage), [asdict(row) for row in ended])
        kept = connection.execute(select(tables.usage_days)).all()
        bills = {
            by: billed(connection, by, SINCE, UNTIL, {}, [])[0] for by in ("user", "project", "queue", "job")
        }
    of_days = [amounts(day, part_in_window(day.day * DAY_S, (day.day + 1) * DAY_S)) for day in kept]
    ledger = total([*of_days, *map(of_record, ended)])
    gpu, cpu, _, memory = ledger
    exact = [Fraction(str(price)) for price in prices]
    cost = (gpu * exact[0] + cpu * exact[1]) / 3_600_000 + memory * exact[2] / (1_024 * 3_600)
    for times in bills.values():
        assert total(map(billed_amounts, times)) == ledger
        assert bill_of(state, times).money == cost
        names = {each.name for each in times}
        assert (
            sum(bill_of(state, [each for each in times if each.name == name]).money for name in names) == cost
        )
