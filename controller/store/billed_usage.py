"""Reports of billed time: the GPU time, CPU time and memory of a time window by tenant and node, as integers.

1. Take the rows of `usage` and `usage_days` that overlap the window, and the usage of running attempts.
2. For each row, take the part inside the window and round it: GPU time and CPU time to whole milliseconds of
   one GPU or CPU, memory to whole MiB-seconds (one MiB for one second).
3. Add these integers by tenant and node. Sums of integers are exact, so reports with different groups (by
   user, by project) have the same total.

Example: two rows of one tenant have 0.0014 s and 0.0017 s, which become 1 ms and 2 ms. Each report with both
rows adds 3 ms for these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, cast, func, literal, null, select
from sqlalchemy import union_all as all_of

from controller.core.model.rows import UsageRow
from controller.store import tables
from controller.store.usage import DAY_S, DELETED, part_in, running_table, selected

TIMES = ("gpu_s", "measured_s", "busy_s", "cpu_s", "cpu_held_s")
"""The columns of the usage tables whose values are added in whole milliseconds."""
MEMORY = "memory_held_s"
"""The column of the usage tables whose values are added in whole MiB-seconds (one MiB for one second)."""
PEAK = "memory_mib"


@dataclass(frozen=True, slots=True)
class BilledTime:
    """The time of one user, project, queue or job (`name`) on one node, in milliseconds: allocated GPU time,
    GPU time with a known utilisation, busy GPU time, used CPU time and allocated CPU time. `memory_mib_s` is
    the allocated memory in MiB-seconds, `memory_peak_mib` the highest memory use of an attempt on the node.
    `node` is empty for deleted jobs, because their nodes are no longer known.
    """

    name: str
    node: str
    gpu_ms: int
    measured_ms: int
    busy_ms: int
    cpu_used_ms: int
    cpu_ms: int
    memory_mib_s: int
    memory_peak_mib: int


def billed(
    connection: Connection,
    by: str,
    since: float,
    until: float,
    only: Mapping[str, str],
    running: Sequence[UsageRow],
    names: Sequence[str] | None = None,
) -> tuple[list[BilledTime], dict[str, int]]:
    """Return the billed time of each group on each node, and the number of jobs of each group.

    `by` says what a group is: "user", "project", "queue" or "job". `only` selects attempts, such as
    {"project": "vision"}. With `names`, only the groups with these names are returned.
    """
    parts = [_attempts(tables.usage, by, since, until, only), _days(by, since, until, only)]
    if running:
        table = running_table(connection, running)
        parts.append(_attempts(table, by, since, until, only))
    rows = all_of(*parts).subquery()
    chosen = () if names is None else (rows.c.name.in_(names),)
    figures = *(func.sum(rows.c[name]) for name in (*TIMES, MEMORY)), func.max(rows.c[PEAK])
    groups = select(rows.c.name, rows.c.node, *figures).where(*chosen).group_by(rows.c.name, rows.c.node)
    found = connection.execute(groups)
    times = [BilledTime(name, node, *map(int, figures)) for name, node, *figures in found]
    jobs = func.count(rows.c.job.distinct()) + func.coalesce(func.sum(rows.c.jobs), 0)
    counts = connection.execute(select(rows.c.name, jobs).where(*chosen).group_by(rows.c.name))
    return sorted(times, key=lambda each: (each.name, each.node)), {name: int(n) for name, n in counts}


def _attempts(table: Any, by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = table.c
    part = part_in(column.since, column.until, since, until)
    return select(
        (column.label if by == "job" else column[by]).label("name"),
        column.node.label("node"),
        column.job.label("job"),
        null().label("jobs"),
        *_amounts(column, part),
    ).where(column.until >= since, column.since < until, part > 0, *selected(column, only))


def _days(by: str, since: float, until: float, only: Mapping[str, str]) -> Select[Any]:
    column = tables.usage_days.c
    begin = column.day * DAY_S
    part = part_in(begin, begin + DAY_S, since, until)
    return select(
        (literal(DELETED) if by == "job" else column[by]).label("name"),
        literal("").label("node"),
        null().label("job"),
        column.jobs.label("jobs"),
        *_amounts(column, part),
    ).where(column.day > since / DAY_S - 1, column.day < until / DAY_S, *selected(column, only))


def _amounts(column: Any, part: Any) -> list[Any]:
    """Return SQL expressions for a row's times and memory, multiplied by `part` (the fraction of the row
    inside the window) and rounded to integers.
    """
    times = [_whole(column[name] * part * 1_000).label(name) for name in TIMES]
    return [*times, _whole(column[MEMORY] * part).label(MEMORY), column[PEAK].label(PEAK)]


def _whole(number: Any) -> Any:
    return cast(func.round(number), BigInteger)
