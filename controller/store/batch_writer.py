"""Writes the journal entries and changed rows of one commit with prepared statements."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, update

from controller.core.model.rows import Batch, JournalEntry
from controller.store import chain, records, tables
from controller.store.backends.backend import Backend
from controller.store.chain import Head
from controller.store.maintenance import retention
from controller.store.records import Record


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The column values of one batch. They are computed before the transaction begins, so that the
    transaction is short.
    """

    entries: list[Record]
    sealed: int | None
    """The number of the last journal entry to delete, from the last JournalSealed entry of the batch; None if
    the batch has no such entry.
    """
    new_jobs: list[Record]
    """All columns of the jobs whose rows have a spec."""
    changed_jobs: list[Record]
    """The columns `records.CHANGING` of the jobs whose rows have no spec. Other columns keep their values."""
    usage: list[Record]
    nodes: list[Record]
    notes: list[Record]
    dropped_notes: list[Record]

    @classmethod
    def of(cls, batch: Batch, entries: list[Record]) -> BatchColumns:
        """Return the column values of a batch whose journal entries have the values `entries`."""
        sealed = [
            json.loads(entry.body)["through"] for entry in batch.entries if entry.kind == retention.SEALED
        ]
        return cls(
            entries,
            sealed[-1] if sealed else None,
            [records.job_record(job) for job in batch.jobs if job.spec is not None],
            [records.job_change(job) for job in batch.jobs if job.spec is None],
            [asdict(row) for row in batch.usage],
            [records.sealed_record(node) for node in batch.nodes],
            [records.sealed_record(note) for note in batch.notes if note.body is not None],
            [{"kind": note.kind, "name": note.name} for note in batch.notes if note.body is None],
        )


class BatchWriter:
    """The statements that write a batch, in the dialect of the database."""

    def __init__(self, place: Backend) -> None:
        self._add_entries = insert(tables.journal)
        self._put_jobs = _insert_or_replace(place, tables.jobs.c.id)
        used = tables.usage.c
        self._put_usage = _insert_or_replace(place, used.job, used.attempt, used.node)
        self._put_nodes = _insert_or_replace(place, tables.nodes.c.name)
        self._put_notes = _insert_or_replace(place, tables.notes.c.kind, tables.notes.c.name)
        self._drop_notes = delete(tables.notes).where(
            tables.notes.c.kind == bindparam("kind"), tables.notes.c.name == bindparam("name")
        )
        self._change_jobs = (
            update(tables.jobs)
            .where(tables.jobs.c.id == bindparam("job"))
            .values({name: bindparam(name) for name in records.CHANGING})
        )

    def write(self, connection: Connection, columns: BatchColumns) -> None:
        """Write a batch in the open transaction of the connection. Raise ValueError if a job that was never
        stored has no spec.
        """
        if columns.entries:
            connection.execute(self._add_entries, columns.entries)
        if columns.sealed is not None:
            retention.write_meta(connection, retention.SEALED, str(columns.sealed))
        if columns.new_jobs:
            connection.execute(self._put_jobs, columns.new_jobs)
        changed = columns.changed_jobs
        if changed and connection.execute(self._change_jobs, changed).rowcount != len(changed):
            raise ValueError("a job that was never stored needs its spec")
        if columns.usage:
            connection.execute(self._put_usage, columns.usage)
        if columns.nodes:
            connection.execute(self._put_nodes, columns.nodes)
        if columns.notes:
            connection.execute(self._put_notes, columns.notes)
        if columns.dropped_notes:
            connection.execute(self._drop_notes, columns.dropped_notes)


def chained(head: Head, entries: Collection[JournalEntry]) -> tuple[Head, list[Record]]:
    """Compute the hashes of new journal entries, which follow the entry `head`. Return the number and hash of
    the newest entry, and the column values of all these entries. Raise ValueError if their numbers do not
    continue that of `head`.
    """
    seq, digest = head
    chained = []
    for entry in entries:
        seq += 1
        if entry.seq != seq:
            raise ValueError(f"entry {entry.seq} cannot follow entry {seq - 1}")
        digest = chain.link(digest, entry)
        chained.append(records.entry_record(entry, digest))
    return Head(seq, digest), chained


def _insert_or_replace(place: Backend, *key: Any) -> Any:
    table = key[0].table
    statement = place.insert(table)
    rest = [column.name for column in table.columns if not column.primary_key]
    new = {name: statement.excluded[name] for name in rest}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new)
