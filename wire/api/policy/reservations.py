"""API bodies for advance reservations."""

from __future__ import annotations

from wire.cluster.reservation import ReservationSpec
from wire.dataclass import dataclass


@dataclass(frozen=True)
class ReserveRequest:
    """The body of a request to reserve nodes. With `anyway`, the nodes are reserved even if running jobs may
    still use them at the start of the reservation.
    """

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation and its nodes. `on` is True while the reservation is active. For a repeated reservation,
    `starts_at` is the start of the current or the next period.
    """

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float
    on: bool
    by: str
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReservationList:
    """Current and future reservations, ordered by start time."""

    reservations: tuple[ReservationView, ...]
    seq: int
