"""Converts rows to table records and back. Each record has a checksum, its seal."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from controller.core.model.rows import JobRow, JournalEntry, NodeRow, NoteRow
from controller.store import tables

Record = dict[str, Any]

CHANGING = ("project", "queue", "name", "state", "ended_at", "body", "seal")
"""The columns of a job that can change. Updates leave the others out, and so their indexes."""

# The tables' columns stand in the order of the fields, the seals behind them.
ENTRIES = select(tables.journal)
JOBS = select(tables.jobs)
NODES = select(tables.nodes)
NOTES = select(tables.notes)


class Unsealed(Exception):
    """The seal of a row does not match."""


def entry_record(entry: JournalEntry, digest: bytes) -> Record:
    """The record of an entry."""
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "job": entry.job,
        "node": entry.node,
        "body": entry.body,
        "hash": digest,
    }


def job_record(job: JobRow) -> Record:
    """The record of a job."""
    return {
        "id": job.id,
        "user": job.user,
        "project": job.project,
        "queue": job.queue,
        "name": job.name,
        "state": job.state,
        "submitted_at": job.submitted_at,
        "ended_at": job.ended_at,
        "key": job.key,
        "array": job.array,
        "spec": job.spec,
        "body": job.body,
        "origin_seal": _origin_seal(job),
        "seal": _job_seal(job),
    }


def job_change(job: JobRow) -> Record:
    """The columns that can change. `job` names the row, because `id` cannot be bound in an UPDATE."""
    return {
        "job": job.id,
        "project": job.project,
        "queue": job.queue,
        "name": job.name,
        "state": job.state,
        "ended_at": job.ended_at,
        "body": job.body,
        "seal": _job_seal(job),
    }


def node_record(node: NodeRow) -> Record:
    """The record of a node."""
    return {"name": node.name, "state": node.state, "body": node.body, "seal": _node_seal(node)}


def note_record(note: NoteRow) -> Record:
    """The record of a note."""
    return {"kind": note.kind, "name": note.name, "body": note.body, "seal": _note_seal(note)}


def read_entry(row: Sequence[Any]) -> tuple[JournalEntry, bytes]:
    """An entry and its stored hash, from a row of ENTRIES."""
    seq, at, kind, job, node, body, digest = row
    return JournalEntry(seq, at, kind, job, node, body), digest


def read_job(row: Sequence[Any], texts: dict[str, str] | None = None) -> JobRow:
    """The job in a row of JOBS. With `texts`, equal specs and bodies share one string."""
    *fields, origin_seal, seal = row
    if texts is not None:
        fields[-2:] = [texts.setdefault(text, text) for text in fields[-2:]]  # spec and body
    job = JobRow(*fields)
    if origin_seal != _origin_seal(job) or seal != _job_seal(job):
        raise Unsealed(f"the row of job {job.id} is not what was written")
    return job


def read_node(row: Sequence[Any]) -> NodeRow:
    """The node in a row of NODES."""
    name, state, body, seal = row
    node = NodeRow(name, state, body)
    if seal != _node_seal(node):
        raise Unsealed(f"the row of node {name} is not what was written")
    return node


def read_note(row: Sequence[Any]) -> NoteRow:
    """The note in a row of NOTES."""
    *fields, seal = row
    note = NoteRow(*fields)
    if seal != _note_seal(note):
        raise Unsealed(f"the row of {note.kind} {note.name} is not what was written")
    return note


# Two seals per job, because an update writes only half of the row and must not read the other half.


def _origin_seal(job: JobRow) -> int:
    return _crc((job.id, job.user, job.submitted_at + 0.0, job.key, job.array, job.spec))


def _job_seal(job: JobRow) -> int:
    ended_at = None if job.ended_at is None else job.ended_at + 0.0
    return _crc((job.id, job.project, job.queue, job.name, job.state, ended_at, job.body))


def _node_seal(node: NodeRow) -> int:
    return _crc((node.name, node.state, node.body))


def _note_seal(note: NoteRow) -> int:
    return _crc((note.kind, note.name, note.body))


def _crc(fields: Sequence[object]) -> int:
    return zlib.crc32("\0".join(map(str, fields)).encode())
