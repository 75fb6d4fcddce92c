"""The base classes of all events. An event is about one job, one node or the cluster."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class JobEvent:
    job: int
    at: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    node: str
    at: float


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    at: float


Event = JobEvent | NodeEvent | ClusterEvent
"""Any event."""
