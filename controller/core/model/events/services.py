"""Events about services: the orders of operators to restart or scale a service."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent


@dataclass(frozen=True, slots=True)
class ServiceRestarted(ClusterEvent):
    """An operator ordered a restart of all replicas of a service. At most `max_unavailable` of them are
    restarted at a time.
    """

    service: str
    by: str


@dataclass(frozen=True, slots=True)
class ServiceScaled(ClusterEvent):
    """An operator set the number of replicas of a service. `declared` is the number in scheduler.toml at that
    time. With `replicas` None, the number in scheduler.toml applies again.
    """

    service: str
    replicas: int | None
    declared: int
    by: str
