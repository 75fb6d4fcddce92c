"""What one commit writes: journal entries, and the rows that they changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event in the journal; `body` is JSON, `seq` grows by one and never repeats."""

    seq: int
    at: float
    kind: str
    job: int | None
    node: str | None
    body: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job after the batch; `spec` is None if it was stored before and has not changed."""

    id: int
    user: str
    project: str
    queue: str
    name: str
    state: str
    submitted_at: float
    ended_at: float | None
    key: str
    array: int | None
    spec: str | None
    body: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node after the batch."""

    name: str
    state: str
    body: str


@dataclass(frozen=True, slots=True)
class NoteRow:
    """Everything else, by kind and name, as JSON; without a body the row is deleted."""

    kind: str
    name: str
    body: str | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The resources that one attempt used on one node, written once when the attempt has ended.

    `measured_s` are the GPU-seconds with a known utilisation, `busy_s` the part of them that was busy.
    """

    job: int
    attempt: int
    node: str
    label: str
    user: str
    project: str
    queue: str
    since: float
    until: float
    gpu_s: float
    measured_s: float
    busy_s: float
    p95: int
    peak_mib: int
    wh: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one commit writes, in one transaction."""

    entries: tuple[JournalEntry, ...]
    jobs: tuple[JobRow, ...]
    nodes: tuple[NodeRow, ...]
    notes: tuple[NoteRow, ...] = ()
    usage: tuple[UsageRow, ...] = ()
