"""Deletes the rows of old ended jobs, and the oldest journal entries.

Jobs
1. Choose the ended jobs that are too old. If more ended jobs would remain than allowed, also choose the jobs
   that ended first. Keep all elements of an array while any element has not ended.
2. In one transaction, add the usage of the chosen jobs to the rows of `usage_days`, then delete the rows of
   these jobs.

Journal
1. The controller commits the entry `JournalSealed`, with the number and the hash of the last entry to delete.
   `JournalSealed` is in the hash chain, so the hashes of all later entries protect it from changes.
2. Delete entries in order, a limited number per transaction. Each transaction also writes the base, which is
   the number and hash of the last deleted entry. Checks of the hash chain begin at the base.

Invariant: after a crash at any time, the base is the entry directly before the first remaining entry. Entries
whose deletion was announced but not finished are deleted later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select, update

from controller.store import tables
from controller.store.backends.backend import Backend
from controller.store.chain import Head
from controller.store.usage import ADDED, DAY_S, GREATEST

SEALED = "JournalSealed"
"""The kind of the journal entry that announces the deletion of older entries. The table `meta` has a row with
the same name, which holds the number of the last entry to delete.
"""
BASE, NEXT_JOB = "base", "next_job"
"""Names of two rows in the table `meta`. They hold the number and hash of the last deleted journal entry (the
base), and the lowest job id above the ids of all deleted jobs and arrays.
"""


def read_base(facts: dict[str, str]) -> Head | None:
    """Return the number and hash of the last deleted journal entry from the rows of the table `meta`; None if
    no entry was deleted."""
    if BASE not in facts:
        return None
    seq, digest = facts[BASE].split()
    return Head(int(seq), bytes.fromhex(digest))


def old_jobs(connection: Connection, before: float, most: int, at_once: int) -> list[int]:
    """Return the ids of up to `at_once` ended jobs to delete, the job that ended first at the beginning.

    A job is deleted if it ended before the time `before`. If more ended jobs are stored than the limit
    `most`, the surplus jobs that ended first are deleted too. No element of an array is deleted while an
    element of this array has not ended.
    """
    jobs = tables.jobs.c
    over = connection.scalar(select(func.count()).where(jobs.ended_at.is_not(None)))
    live = tables.jobs.alias().c
    arrays = select(live.array).where(live.ended_at.is_(None), live.array.is_not(None))
    query = (
        select(jobs.id, jobs.ended_at)
        .where(jobs.ended_at.is_not(None), jobs.array.is_(None) | jobs.array.not_in(arrays))
        .order_by(jobs.ended_at, jobs.id)
        .limit(at_once)
    )
    excess = max(0, (over or 0) - most)
    found = connection.execute(query).all()
    return [number for place, (number, ended_at) in enumerate(found) if ended_at < before or place < excess]


def old_entries(connection: Connection, before: float, most: int, least: int) -> int:
    """Return the number of the newest journal entry to delete: see Store.old_entries()."""
    journal = tables.journal.c
    last, first = connection.execute(select(func.max(journal.seq), func.min(journal.seq))).one()
    if last is None:
        return 0
    # Find the newest entry that is older than `before` by binary search, because entries are in the order of
    # their times.
    low, high = first - 1, last
    while low < high:
        middle = (low + high + 1) // 2
        at = connection.scalar(select(journal.at).where(journal.seq == middle))
        low, high = (middle, high) if at is not None and at < before else (low, middle - 1)
    return int(min(max(low, last - most), last - least))


def sealed(connection: Connection) -> int:
    """Return the number of the last journal entry whose deletion is announced; 0 if none is announced."""
    found = connection.scalar(select(tables.meta.c.value).where(tables.meta.c.name == SEALED))
    return int(found or 0)


def delete_jobs(place: Backend, connection: Connection, ids: Collection[int]) -> None:
    """Delete the rows of these jobs, and add their usage to the usage by day."""
    used, jobs = tables.usage, tables.jobs
    rows = connection.execute(select(used).where(used.c.job.in_(ids))).mappings().all()
    days = usage_by_day([dict(row) for row in rows])
    if days:
        connection.execute(_add_days(place), days)
    connection.execute(delete(used).where(used.c.job.in_(ids)))
    number = func.max(case((jobs.c.array > jobs.c.id, jobs.c.array), else_=jobs.c.id))
    highest = connection.scalar(select(number).where(jobs.c.id.in_(ids)))
    connection.execute(delete(jobs).where(jobs.c.id.in_(ids)))
    known = connection.scalar(select(tables.meta.c.value).where(tables.meta.c.name == NEXT_JOB))
    write_meta(connection, NEXT_JOB, str(max((highest or 0) + 1, int(known or 0))))


def delete_entries(connection: Connection, through: int, base: Head | None, at_once: int) -> Head | None:
    """Delete the oldest journal entries: at most `at_once` entries, and none with a number above `through`.

    `base` is the number and hash of the last entry that was deleted earlier; None if there is none. Return
    the number and hash of the last entry that is deleted now; None if there is nothing to delete.
    """
    journal = tables.journal.c
    last = min(through, (base.seq if base else 0) + at_once)
    digest = connection.scalar(select(journal.hash).where(journal.seq == last))
    if digest is None or (base is not None and last <= base.seq):
        return None
    connection.execute(delete(tables.journal).where(journal.seq <= last))
    write_meta(connection, BASE, f"{last} {digest.hex()}")
    return Head(last, digest)


def write_meta(connection: Connection, name: str, value: str) -> None:
    """Write or replace a row of the table `meta`, which holds values of the whole store, such as its id."""
    meta = tables.meta
    if not connection.execute(update(meta).where(meta.c.name == name).values(value=value)).rowcount:
        connection.execute(insert(meta), {"name": name, "value": value})


def usage_by_day(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of the usage of these attempts by day, user, project and queue. The usage of an attempt
    that ran on several days is divided among the days."""
    days: dict[tuple[int, str, str, str], dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys((*ADDED, *GREATEST), 0)
    )
    jobs: dict[tuple[int, str, str, str], set[int]] = defaultdict(set)
    last = {row["job"]: row for row in sorted(rows, key=lambda row: row["until"])}
    for row in rows:
        since, until = row["since"], row["until"]
        whose = (row["user"], row["project"], row["queue"])
        for day in range(int(since // DAY_S), int(until // DAY_S) + 1):
            there = min(until, (day + 1) * DAY_S) - max(since, day * DAY_S)
            part = there / (until - since) if until > since else 1.0
            sums = days[(day, *whose)]
            for name in ADDED:
                sums[name] += row[name] * part
            for name in GREATEST:
                sums[name] = max(sums[name], row[name])
    for job, row in last.items():
        jobs[(int(row["until"] // DAY_S), row["user"], row["project"], row["queue"])].add(job)
    return [
        {"day": key[0], "user": key[1], "project": key[2], "queue": key[3], "jobs": len(jobs[key]), **sums}
        for key, sums in days.items()
    ]


def _add_days(place: Backend) -> Any:
    table = tables.usage_days
    statement, there = place.insert(table), table.c
    new = statement.excluded
    summed = {name: there[name] + new[name] for name in ("jobs", *ADDED)}
    highest = {name: case((new[name] > there[name], new[name]), else_=there[name]) for name in GREATEST}
    return statement.on_conflict_do_update(
        index_elements=[there.day, there.user, there.project, there.queue], set_={**summed, **highest}
    )
