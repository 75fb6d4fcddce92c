"""The sum of a report on billed GPU time is that of the usage records, to the millisecond."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert

from controller.core.model.rows import UsageRow
from controller.store import tables
from controller.store.billed_usage import billed

NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.floats(0.0, 3_000.0, allow_nan=False)
SINCE, UNTIL = 1_000.0, 2_000.0


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
        rows.append(row)
    return rows


def milliseconds(row: UsageRow) -> int:
    """The GPU time of a record inside the window, in whole milliseconds."""
    if row.until < SINCE or row.since >= UNTIL:
        return 0
    begin, end = max(row.since, SINCE), min(row.until, UNTIL)
    part = (end - begin) / (row.until - row.since) if row.until > row.since else 1.0
    return math.floor(row.gpu_s * part * 1_000 + 0.5) if part > 0 else 0


@settings(max_examples=40, deadline=None)
@given(ended=records(), running=records())
def test_sums_of_the_report_are_those_of_the_records(ended: list[UsageRow], running: list[UsageRow]) -> None:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine, [tables.usage, tables.usage_days])
    for by in ("user", "project", "queue"):
        with engine.begin() as connection:
            if ended:
                connection.execute(insert(tables.usage), [asdict(row) for row in ended])
            times, jobs = billed(connection, by, SINCE, UNTIL, {}, running)
            connection.rollback()
        sums: Counter[str] = Counter()
        for each in times:
            assert isinstance(each.gpu_ms, int)
            sums[each.name] += each.gpu_ms
        expected: Counter[str] = Counter()
        for row in [*ended, *running]:
            expected[getattr(row, by)] += milliseconds(row)
        assert +sums == +expected
        assert sum(sums.values()) == sum(milliseconds(row) for row in [*ended, *running])
        assert {*jobs} == {*sums}
    if ended:
        only: dict[str, Any] = {"project": ended[0].project}
        with engine.begin() as connection:
            connection.execute(insert(tables.usage), [asdict(row) for row in ended])
            times, _ = billed(connection, "user", SINCE, UNTIL, only, [])
            connection.rollback()
        wanted = [row for row in ended if row.project == only["project"]]
        assert sum(each.gpu_ms for each in times) == sum(map(milliseconds, wanted))
