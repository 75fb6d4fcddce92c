"""What a batch of decisions leaves behind: journal entries and the rows they touched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact of the journal; `body` is JSON, `seq` grows by one and never repeats."""

    seq: int
    at: float
    kind: str
    job: int | None
    node: str | None
    body: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands after the batch; `spec` is None when it was stored before."""

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
    """A node as it stands after the batch."""

    name: str
    state: str
    body: str


@dataclass(frozen=True, slots=True)
class NoteRow:
    """Whatever else is kept, by kind and name, as JSON; no body: it is kept no longer."""

    kind: str
    name: str
    body: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one commit writes, in one transaction."""

    entries: tuple[Entry, ...]
    jobs: tuple[JobRow, ...]
    nodes: tuple[NodeRow, ...]
    notes: tuple[NoteRow, ...] = ()
