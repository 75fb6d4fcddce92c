"""API bodies for services: their replicas, and the orders of operators about services."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass
from wire.names import JobState, Reason


@dataclass(frozen=True)
class ReplicaView:
    """One job of a service. `number` is the number of the replica. Two jobs have the same number while one
    replaces the other.
    """

    number: int
    job: int
    state: JobState
    reason: Reason
    detail: str = ""
    nodes: tuple[str, ...] = ()
    ready: bool = False
    current: bool = True
    """True if the job runs with the present settings of the service. False if the service has been changed
    and the job will be replaced.
    """
    restarts: int = 0
    started_at: Optional[float] = None
    replaces: Optional[int] = None
    """The job that ends when this replica is ready; None if this replica replaces no job."""


@dataclass(frozen=True)
class ServiceView:
    """A service and its replicas. `wanted` is the number of replicas that must run, and `declared` the number
    in scheduler.toml. `ready` is the number of ready replicas, and `current` the number of ready replicas
    with the present settings.
    """

    name: str
    user: str
    project: str
    queue: str
    wanted: int
    declared: int
    ready: int
    current: int
    max_unavailable: int
    replicas: tuple[ReplicaView, ...] = ()
    problem: str = ""
    """The reason why no more replicas can be queued; empty if replicas can be queued."""


@dataclass(frozen=True)
class ServiceList:
    """All services of scheduler.toml, ordered by name."""

    services: tuple[ServiceView, ...]
    seq: int


@dataclass(frozen=True)
class ScaleRequest:
    """The body of a request to set the number of replicas that a service must have. None means the number in
    scheduler.toml.
    """

    replicas: Optional[int] = None
