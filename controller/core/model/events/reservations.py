"""Events about advance reservations."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent
from wire.cluster.reservation import ReservationSpec


@dataclass(frozen=True, slots=True)
class ReservationMade(ClusterEvent):
    """An operator reserved nodes for a time."""

    asked: ReservationSpec
    nodes: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReservationBegan(ClusterEvent):
    """The reserved time of a reservation has begun."""

    reservation: str


@dataclass(frozen=True, slots=True)
class ReservationEnded(ClusterEvent):
    """The reserved time of a reservation has ended. `again_at` is the start of its next occurrence; None if
    there is none.
    """

    reservation: str
    again_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReservationCancelled(ClusterEvent):
    reservation: str
    by: str
