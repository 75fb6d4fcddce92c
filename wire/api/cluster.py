"""The cluster as a whole: summary, health, events and their stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.nodes import NodeView


@dataclass(frozen=True)
class ClusterView:
    """The cluster in one glance."""

    name: str
    version: str
    now: float
    seq: int
    jobs: Mapping[str, int]
    nodes: Mapping[str, int]
    gpus: int
    gpus_used: float
    cpu_milli: int
    cpu_used_milli: int
    started_at: float


@dataclass(frozen=True)
class EventView:
    """One fact of the journal, with a sentence for people."""

    seq: int
    at: float
    kind: str
    text: str
    job: Optional[int] = None
    node: Optional[str] = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EventList:
    """A page of the journal."""

    events: tuple[EventView, ...]
    seq: int


@dataclass(frozen=True)
class StreamBatch:
    """One commit on the stream: its events and every job and node as it is after them.

    A batch without events carries fresh GPU readings; it does not advance the journal.
    """

    seq: int
    events: tuple[EventView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()


@dataclass(frozen=True)
class Health:
    """Is the controller well?"""

    status: str
    version: str
    uptime_s: float
    seq: int
    user: str = ""
    role: str = ""
