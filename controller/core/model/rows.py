"""The database rows that one commit writes. These are journal entries, and the rows of the jobs, nodes and
notes that the events changed. A note is a row for any other stored state, such as a quota.
"""

from __future__ import annotations

from controller.core.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event in the journal. `body` is the event as JSON. `seq` is the number of the entry; the numbers
    have no gaps.
    """

    seq: int
    at: float
    kind: str
    job: int | None
    node: str | None
    body: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """The database row of a job after all events of the commit. `spec` is None if the stored spec has not
    changed.
    """

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
    """The database row of a node after all events of the commit."""

    name: str
    state: str
    body: str


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A row for stored state that is neither a job nor a node, such as a quota. `kind` and `name` identify
    the row. `body` is JSON; None deletes the row.
    """

    kind: str
    name: str
    body: str | None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The resources that one attempt used on one node, written once when the attempt has ended.

    `measured_s` is the number of GPU-seconds with a known utilisation. `busy_s` is the number of GPU-seconds
    in which the GPU was busy. `cpu_s` is the used CPU time, and `cpu_held_s` the allocated CPU time (CPUs
    times seconds). `memory_held_s` is the allocated memory in MiB times seconds, `memory_mib` the peak
    memory.
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
    cpu_held_s: float = 0.0
    memory_held_s: float = 0.0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows that one commit writes in one transaction."""

    entries: tuple[JournalEntry, ...]
    jobs: tuple[JobRow, ...]
    nodes: tuple[NodeRow, ...]
    notes: tuple[NoteRow, ...] = ()
    usage: tuple[UsageRow, ...] = ()
