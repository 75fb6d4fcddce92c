"""Reports of billed GPU time: the GPU time of a time window by tenant and node, in whole milliseconds.

1. Take the rows of `usage` and `usage_days` that overlap the window, and the usage of running attempts.
2. Round the GPU time of each row inside the window to whole milliseconds of one GPU.
3. Add these integers by tenant and node. Integers have exact sums, so the sum of all groups is equal to the
   sum of all rows, whatever the groups are.

Example: two rows of one tenant have 0.0014 s and 0.0017 s, which become 1 ms and 2 ms. Each report that
includes both rows adds 3 ms for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, cast, func, insert, literal, null, select
from sqlalchemy import union_all as all_of

from controller.core.model.rows import UsageRow
from controller.store import tables
from controller.store.usage import DAY_S, part_in, running_table

TIMES = ("gpu_s", "measured_s", "busy_s")


@dataclass(frozen=True, slots=True)
class BilledTime:
    """The GPU time of a tenant on one node in milliseconds: the allocated time, the time with a known
    utilisation, and the busy time. `node` is empty for deleted jobs, because their nodes are no longer known.
    """

    name: str
    node: str
    gpu_ms: int
    measured_ms: int
    busy_ms: int


def billed(
    connection: Connection,
    by: str,
    since: float,
    until: float,
    only: Mapping[str, str],
    running: Sequence[UsageRow],
) -> tuple[list[BilledTime], dict[str, int]]:
    """Return the GPU time by tenant and node, and the number of jobs of each tenant.

    `by` is "user", "project" or "queue". `only` restricts the rows to a user, a project or a queue.
    """
    parts = [_attempts(tables.usage, by, since, until, only), _days(by, since, until, only)]
    if running:
        table = running_table(connection)
        connection.execute(insert(table), [asdict(row) for row in running])
        parts.append(_attempts(table, by, since, until, only))
    rows = all_of(*parts).subquery()
    sums = (func.sum(rows.c[name]) for name in TIMES)
    found = connection.execute(select(rows.c.name, rows.c.node, *sums).group_by(rows.c.name, rows.c.node))
    times = [BilledTime(name, node, *map(int, figures)) for name, node, *figures in found]
    jobs = func.count(rows.c.job.distinct()) + func.coalesce(func.sum(rows.c.jobs), 0)
    counts = connection.execute(select(rows.c.name, jobs).group_by(rows.c.name))
    return sorted(times, key=lambda each: (each.name, each.node)), {name: int(n) for name, n in counts}


def _attempts(table: Any, by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = table.c
    part = part_in(column.since, column.until, since, until)
    return select(
        column[by].label("name"),
        column.node.label("node"),
        column.job.label("job"),
        null().label("jobs"),
        *(_milliseconds(column[name] * part).label(name) for name in TIMES),
    ).where(column.until >= since, column.since < until, part > 0, *_only(column, only))


def _days(by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = tables.usage_days.c
    begin = column.day * DAY_S
    part = part_in(begin, begin + DAY_S, since, until)
    return select(
        column[by].label("name"),
        literal("").label("node"),
        null().label("job"),
        column.jobs.label("jobs"),
        *(_milliseconds(column[name] * part).label(name) for name in TIMES),
    ).where(column.day > since / DAY_S - 1, column.day < until / DAY_S, *_only(column, only))


def _only(column: Any, only: Mapping[str, str]) -> list[Any]:
    return [column[name] == value for name, value in only.items()]


def _milliseconds(seconds: Any) -> Any:
    return cast(func.round(seconds * 1_000), BigInteger)
