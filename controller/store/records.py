"""Converts rows to records of the database and back. Each record has a seal, which is a checksum of its
values."""

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
"""The columns of a job that can change. An update writes only these columns, so most indexes stay
unchanged."""

# The columns of each table have the names and the order of the row's fields; the seals are the last columns.
ENTRIES = select(tables.journal)
JOBS = select(tables.jobs)
NODES = select(tables.nodes)
NOTES = select(tables.notes)

_NAMES = {
    kind: tuple(each.name for each in fields(kind)) for kind in (JournalEntry, JobRow, NodeRow, NoteRow)
}


class Unsealed(Exception):
    """The seal of a row does not match."""


def entry_record(entry: JournalEntry, digest: bytes) -> Record:
    """The record of an entry."""
    return _values(entry) | {"hash": digest}


def job_record(job: JobRow) -> Record:
    """The record of a job."""
    return _values(job) | {"origin_seal": _origin_seal(job), "seal": _job_seal(job)}


def job_change(job: JobRow) -> Record:
    """The record that updates a job. The parameter with the id is called `job`, because a parameter of an
    UPDATE must not have the name of a column."""
    changed = {name: getattr(job, name) for name in CHANGING if name != "seal"}
    return changed | {"job": job.id, "seal": _job_seal(job)}


def sealed_record(row: NodeRow | NoteRow) -> Record:
    """The record of a node or note."""
    values = _values(row)
    return values | {"seal": _crc([*values.values()])}


def read_entry(row: Sequence[Any]) -> tuple[JournalEntry, bytes]:
    """An entry and its stored hash, from a row of ENTRIES."""
    *values, digest = row
    return JournalEntry(*values), digest


def read_job(row: Sequence[Any], texts: dict[str, str] | None = None) -> JobRow:
    """The job in a row of JOBS. With `texts`, equal specs and equal bodies share one string to save
    memory."""
    *values, origin_seal, seal = row
    if texts is not None:
        values[-2:] = [texts.setdefault(text, text) for text in values[-2:]]  # spec and body
    job = JobRow(*values)
    if origin_seal != _origin_seal(job) or seal != _job_seal(job):
        raise Unsealed(f"the row of job {job.id} is not what was written")
    return job


def read_node(row: Sequence[Any]) -> NodeRow:
    """The node in a row of NODES."""
    return _read_sealed(NodeRow, row, "node {}")


def read_note(row: Sequence[Any]) -> NoteRow:
    """The note in a row of NOTES."""
    return _read_sealed(NoteRow, row, "{} {}")


def _read_sealed(kind: type[Sealed], row: Sequence[Any], named: str) -> Sealed:
    *values, seal = row
    if seal != _crc(values):
        raise Unsealed(f"the row of {named.format(*values)} is not what was written")
    return kind(*values)


def _values(row: Row) -> Record:
    return {name: getattr(row, name) for name in _NAMES[type(row)]}


# A job has two seals, because an update writes only half of the row and does not read the other half.


def _origin_seal(job: JobRow) -> int:
    return _crc((job.id, job.user, job.submitted_at + 0.0, job.key, job.array, job.spec))


def _job_seal(job: JobRow) -> int:
    ended_at = None if job.ended_at is None else job.ended_at + 0.0
    return _crc((job.id, job.project, job.queue, job.name, job.state, ended_at, job.body))


def _crc(values: Sequence[object]) -> int:
    return zlib.crc32("\0".join(map(str, values)).encode())
