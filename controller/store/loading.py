"""Reads the rows that a controller loads at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from controller.core.model.rows import JobRow, NodeRow, NoteRow
from controller.core.model.skipped_numbers import NONE_SKIPPED, SkippedNumbers
from controller.store import records, tables
from controller.store.maintenance import retention

SKIPPED = "skipped_numbers"
"""The name of the row of `meta` with the first job id and the first attempt number that may be given after an
accepted loss of journal entries.
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows that a controller loads at its start: jobs that have not ended, the newest ended jobs, nodes,
    and notes (other state, such as reservations).
    """

    last_seq: int
    last_at: float
    next_job: int
    jobs: list[JobRow]
    ended: list[JobRow]
    nodes: list[NodeRow]
    notes: list[NoteRow]
    meta: dict[str, str]
    skipped: SkippedNumbers = NONE_SKIPPED


def load(connection: Connection, keep: int, meta: Mapping[str, str]) -> Loaded:
    """Read the rows that a controller needs at its start, with the `keep` newest ended jobs. `meta` has the
    rows of the table `meta`, such as the id of the store.
    """
    jobs = tables.jobs.c
    texts: dict[str, str] = {}
    live = connection.execute(records.JOBS.where(jobs.ended_at.is_(None)).order_by(jobs.id))
    newest = records.JOBS.where(jobs.ended_at.is_not(None)).order_by(jobs.ended_at.desc(), jobs.id.desc())
    ended = connection.execute(newest.limit(keep))
    last = select(tables.journal.c.seq, tables.journal.c.at).order_by(tables.journal.c.seq.desc())
    last_seq, last_at = connection.execute(last.limit(1)).one_or_none() or (0, 0.0)
    # The next job id is above all ids of jobs and arrays, which are counted together. Use two queries,
    # because SQLite uses an index only for a query with a single max(), and the index of arrays only if the
    # query excludes NULL.
    highest = [
        connection.scalar(select(func.max(column)).where(column.is_not(None)))
        for column in (jobs.id, jobs.array)
    ]
    next_job = select(tables.meta.c.value).where(tables.meta.c.name == retention.NEXT_JOB)
    deleted = connection.scalar(next_job)
    skipped = read_skipped(connection)
    return Loaded(
        last_seq=last_seq,
        last_at=last_at,
        next_job=max(*(number + 1 for number in highest if number), int(deleted or 0), skipped.first_id),
        jobs=[records.read_job(row, texts) for row in live],
        ended=[records.read_job(row, texts) for row in ended],
        nodes=[records.read_node(row) for row in connection.execute(records.NODES)],
        notes=[records.read_note(row) for row in connection.execute(records.NOTES)],
        meta=dict(meta),
        skipped=skipped,
    )


def read_skipped(connection: Connection) -> SkippedNumbers:
    """Return the first job id and the first attempt number that may be given after an accepted loss of
    journal entries; NONE_SKIPPED if no loss was accepted.
    """
    found = connection.scalar(select(tables.meta.c.value).where(tables.meta.c.name == SKIPPED))
    return SkippedNumbers(*map(int, found.split())) if found else NONE_SKIPPED
