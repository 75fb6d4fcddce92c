"""The cluster as a whole: summary, health, events and their stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.nodes import NodeView


@dataclass(frozen=True)
class ClusterView:
    """Summary of the cluster."""

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
    """One entry of the journal, with a sentence for people."""

    seq: int
    at: float
    kind: str
    text: str
    job: Optional[int] = None
    node: Optional[str] = None
    data: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    """Label of the job: 17, or 12_3 for an element of array 12."""


@dataclass(frozen=True)
class EventList:
    """A page of the journal. Entries up to `begins` were deleted by retention."""

    events: tuple[EventView, ...]
    seq: int
    begins: int = 0


@dataclass(frozen=True)
class StreamBatch:
    """One commit on the stream: its events, and each changed job and node after them.

    A batch without events carries fresh GPU readings; it does not advance the journal.
    """

    seq: int
    events: tuple[EventView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()


@dataclass(frozen=True)
class Health:
    """Whether the controller is healthy."""

    status: str
    version: str
    uptime_s: float
    seq: int
    user: str = ""
    role: str = ""
