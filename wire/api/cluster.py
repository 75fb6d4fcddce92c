"""API bodies for the whole cluster: the summary, health, events and the event stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.nodes import NodeView


@dataclass(frozen=True)
class ClusterView:
    """Summary of the cluster: numbers of jobs and nodes by state, and used resources."""

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
    wait_alarms: int = 0
    """The number of waiting jobs that have waited much longer than usual (`[scheduler] wait_alarm`)."""


@dataclass(frozen=True)
class EventView:
    """One event of the journal. `text` describes the event in a sentence for users."""

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
    """A page of events from the journal. Retention has deleted all events with numbers up to and including
    `begins`; `begins` is 0 if it deleted none.
    """

    events: tuple[EventView, ...]
    seq: int
    begins: int = 0


@dataclass(frozen=True)
class StreamBatch:
    """A message of the event stream: the events of one commit to the journal, and the new state of each job
    and node that these events change.

    GPU readings are not in the journal. A message without events has nodes with new GPU readings.
    """

    seq: int
    events: tuple[EventView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()


@dataclass(frozen=True)
class Health:
    """The health of the controller. `user` and `role` are the name and the role of the user that sent the
    request.
    """

    status: str
    version: str
    uptime_s: float
    seq: int
    user: str = ""
    role: str = ""
