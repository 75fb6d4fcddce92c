"""Reports of usage: the resources that attempts used in a time window, summed by the database.

1. Take the rows of `usage` and `usage_days` that overlap the window. The caller passes the usage of running
   attempts, which is written to a temporary table.
2. Multiply the values of each row by the fraction of its time that is inside the window.
3. Group by user, project, queue or job. Order the groups by GPU time. Return the first groups, up to the
   number `most`, and the number of all groups.

Cost: one scan of the rows that ended after the window began. The database computes the sums, so the memory of
the controller does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    Select,
    Table,
    case,
    func,
    insert,
    literal,
    null,
    select,
)
from sqlalchemy import union_all as all_of

from controller.core.model.rows import UsageRow
from controller.store import tables

DAY_S = 86_400.0
DELETED = "(deleted jobs)"
"""The name of the group of all deleted jobs in a report by job. Retention keeps the usage of deleted jobs by
day and not by job.
"""
ADDED = ("gpu_s", "measured_s", "busy_s", "wh", "cpu_s", "cpu_held_s", "memory_held_s")
GREATEST = ("p95", "peak_mib", "memory_mib")

_running = tables.usage.to_metadata(MetaData(), name="running")
_running.indexes.clear()
_running._prefixes = ["TEMPORARY"]


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The usage of one user, project, queue or job in a report."""

    name: str
    jobs: int
    gpu_s: float
    measured_s: float
    busy_s: float
    wh: float
    cpu_s: float
    cpu_held_s: float
    memory_held_s: float
    p95: int
    peak_mib: int
    memory_mib: int


def report(
    connection: Connection,
    by: str,
    since: float,
    until: float,
    most: int,
    running: Sequence[UsageRow],
    only: Mapping[str, str],
) -> tuple[list[UsageSum], int]:
    """Return the usage of the groups with the most GPU time, up to `most` groups, and the number of all
    groups.

    `by` is "user", "project", "queue" or "job"; `running` is the usage of attempts that have not ended.
    `only` selects attempts, such as {"project": "vision"}.
    """
    parts = [_attempts(tables.usage, by, since, until, only), _days(by, since, until, only)]
    if running:
        table = running_table(connection, running)
        parts.append(_attempts(table, by, since, until, only))
    rows = all_of(*parts).subquery()
    gpu_s = func.sum(rows.c.gpu_s)
    found = connection.execute(
        select(
            rows.c.name,
            func.count(rows.c.job.distinct()) + func.coalesce(func.sum(rows.c.jobs), 0),
            *(func.sum(rows.c[name]) for name in ADDED),
            *(func.max(rows.c[name]) for name in GREATEST),
            func.count().over(),
        )
        .group_by(rows.c.name)
        .order_by(gpu_s.desc(), rows.c.name)
        .limit(most)
    ).all()
    sums = [UsageSum(name, int(jobs), *figures) for name, jobs, *figures, _ in found]
    return sums, int(found[0][-1]) if found else 0


def running_table(connection: Connection, running: Sequence[UsageRow]) -> Table:
    """Create a temporary table with the usage of running attempts, and return the table."""
    _running.create(connection)
    connection.execute(insert(_running), [asdict(row) for row in running])
    return _running


def _attempts(table: Any, by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = table.c
    part = part_in(column.since, column.until, since, until)
    return select(
        (column.label if by == "job" else column[by]).label("name"),
        column.job.label("job"),
        null().label("jobs"),
        *((column[name] * part).label(name) for name in ADDED),
        *(column[name].label(name) for name in GREATEST),
    ).where(column.until >= since, column.since < until, part > 0, *selected(column, only))


def _days(by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = tables.usage_days.c
    begin = column.day * DAY_S
    part = part_in(begin, begin + DAY_S, since, until)
    return select(
        (literal(DELETED) if by == "job" else column[by]).label("name"),
        null().label("job"),
        column.jobs.label("jobs"),
        *((column[name] * part).label(name) for name in ADDED),
        *(column[name].label(name) for name in GREATEST),
    ).where(column.day > since / DAY_S - 1, column.day < until / DAY_S, *selected(column, only))


def selected(column: Any, only: Mapping[str, str]) -> list[Any]:
    """Return the SQL conditions for the rows that `only` selects, such as {"project": "vision"}."""
    return [column[name] == value for name, value in only.items()]


def part_in(begin: Any, end: Any, since: float, until: float) -> ColumnElement[float]:
    """Return the fraction (0 to 1) of the time from `begin` to `end` that is between `since` and `until`; 1
    if `begin` equals `end`.
    """
    first = case((begin < since, since), else_=begin)
    last = case((end > until, until), else_=end)
    return case((end > begin, (last - first) / (end - begin)), else_=1.0)
