"""Converts row objects, such as JobRow, to the column values of the database and back. Each row has a
checksum that reveals damage."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import select

from controller.core.model.rows import JobRow, JournalEntry, NodeRow, NoteRow
from controller.store import tables

Record = dict[str, Any]
Row = JournalEntry | JobRow | NodeRow | NoteRow
Sealed = TypeVar("Sealed", NodeRow, NoteRow)

CHANGING = ("project", "queue", "name", "state", "ended_at", "body", "seal")
"""The columns of a job that are written if the new row has no spec. The indexes of other columns then need no
change.
"""

# The columns of each table have the names and the order of the fields of the row class, such as JobRow. The
# columns with hashes or checksums come last.
ENTRIES = select(tables.journal)
JOBS = select(tables.jobs)
NODES = select(tables.nodes)
NOTES = select(tables.notes)

_NAMES = {
    kind: tuple(each.name for each in fields(kind)) for kind in (JournalEntry, JobRow, NodeRow, NoteRow)
}


class Unsealed(Exception):
    """Raised if the checksum of a row does not match, because the row was damaged or changed outside of
    Corral."""


def entry_record(entry: JournalEntry, digest: bytes) -> Record:
    """Return the column values of a journal entry. `digest` is its hash."""
    return _values(entry) | {"hash": digest}


def job_record(job: JobRow) -> Record:
    """Return the column values, with checksums, for a new row of a job."""
    return _values(job) | {"origin_seal": _origin_seal(job), "seal": _job_seal(job)}


def job_change(job: JobRow) -> Record:
    """Return the parameters of an UPDATE statement for the columns CHANGING of a job, such as the state.

    The parameter with the job's id is named `job` and not `id`, because SQLAlchemy does not permit the name
    of a column for a parameter of the WHERE clause.
    """
    changed = {name: getattr(job, name) for name in CHANGING if name != "seal"}
    return changed | {"job": job.id, "seal": _job_seal(job)}


def sealed_record(row: NodeRow | NoteRow) -> Record:
    """Return the column values of a node or note (a row of other state, such as a reservation), with their
    checksum."""
    values = _values(row)
    return values | {"seal": _crc([*values.values()])}


def read_entry(row: Sequence[Any]) -> tuple[JournalEntry, bytes]:
    """Return the journal entry in a row of the query ENTRIES, and its stored hash."""
    *values, digest = row
    return JournalEntry(*values), digest


def read_job(row: Sequence[Any], texts: dict[str, str] | None = None) -> JobRow:
    """Return the job in a row of the query JOBS. Raise Unsealed if one of its checksums does not match.

    `texts` has the JSON texts of the jobs that were read before. Jobs with equal texts thus share one string,
    which saves memory.
    """
    *values, origin_seal, seal = row
    if texts is not None:
        # The last two values are the spec and the body of the job, which are JSON texts.
        values[-2:] = [texts.setdefault(text, text) for text in values[-2:]]
    job = JobRow(*values)
    if origin_seal != _origin_seal(job) or seal != _job_seal(job):
        raise Unsealed(f"the row of job {job.id} is not what was written")
    return job


def read_node(row: Sequence[Any]) -> NodeRow:
    """Return the node in a row of the query NODES. Raise Unsealed if its checksum does not match."""
    return _read_sealed(NodeRow, row, "node {}")


def read_note(row: Sequence[Any]) -> NoteRow:
    """Return the note (other state, such as a reservation) in a row of the query NOTES. Raise Unsealed if its
    checksum does not match.
    """
    return _read_sealed(NoteRow, row, "{} {}")


def _read_sealed(kind: type[Sealed], row: Sequence[Any], named: str) -> Sealed:
    *values, seal = row
    if seal != _crc(values):
        raise Unsealed(f"the row of {named.format(*values)} is not what was written")
    return kind(*values)


def _values(row: Row) -> Record:
    return {name: getattr(row, name) for name in _NAMES[type(row)]}


# A job has two checksums: `origin_seal` for the columns that most updates do not write, such as the spec, and
# `seal` for the columns CHANGING. An update of the columns CHANGING thus writes only `seal`, and need not
# read the row.


def _origin_seal(job: JobRow) -> int:
    return _crc((job.id, job.user, job.submitted_at + 0.0, job.key, job.array, job.spec))


def _job_seal(job: JobRow) -> int:
    ended_at = None if job.ended_at is None else job.ended_at + 0.0
    return _crc((job.id, job.project, job.queue, job.name, job.state, ended_at, job.body))


def _crc(values: Sequence[object]) -> int:
    return zlib.crc32("\0".join(map(str, values)).encode())
