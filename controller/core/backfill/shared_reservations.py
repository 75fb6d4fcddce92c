"""Backfill reservations of one profile on nodes that other profiles use as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.core.backfill.conservative.queue_reservations import QueueReservations
from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.cluster.node_table import Bools
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer
from controller.core.queue.queue import QueueEntry
from controller.core.state.state import State


class GuaranteedStart(Protocol):
    """A waiting job with the time at which it starts at the latest: the interface of all kinds of backfill
    reservations.
    """

    @property
    def job(self) -> int:
        """The id of the waiting job."""
        ...

    @property
    def starts_at(self) -> float:
        """The time at which the job starts at the latest."""
        ...


class SharedReservations:
    """The reservations of one profile in a table that several profiles share.

    EASY backfill keeps a number of nodes free, but no particular ones. Two profiles that share nodes could
    both count on the same nodes. Therefore this class reserves particular nodes and GPUs, and a job starts
    only where its resources stay unreserved until its end.

    Example: profile A reserves gpu01 from 11:00 for job 7. Profile B may start a job of 30 minutes on gpu01
    at 10:15, and a job of two hours only on GPUs that job 7 does not need.
    """

    def __init__(
        self, state: State, placer: Placer, runtime: Callable[[Job], float], table: ReservationTable
    ) -> None:
        self.reservations = QueueReservations(state, placer, runtime, table)
        self._runtime = runtime
        self._placer = placer
        self._table = table
        self._state = state

    @property
    def edition(self) -> int:
        """A counter that grows when a reservation in the shared table is dropped or moved.

        When it has grown, other jobs may be able to start.
        """
        return self._table.edition

    def reservation_of(self, job: int) -> BackfillReservation | None:
        """Return the reservation of a job of this profile; None if it has none."""
        return self.reservations.by_job.get(job)

    def due(self, now: float) -> bool:
        """Return whether the reserved start of a job of this profile has come."""
        return any(each.starts_at <= now for each in self.reservations.by_job.values())

    def reserve(self, head: QueueEntry | None, now: float) -> None:
        """Reserve the earliest start for the first waiting job. Drop the profile's other reservations."""
        if head is not None or self.reservations.by_job:
            self.reservations.update([] if head is None else [(head[1], None)], now)

    def find(self, job: Job, barred: Bools | None, now: float, fewer: int | None = None) -> Placement | None:
        """Return the best placement of the job that delays no reservation of another job (see
        QueueReservations.find_now).
        """
        return self.reservations.find_now(job, barred, now, fewer)

    def needs_reserved_licences(self, job: Job, now: float) -> bool:
        """Return whether the job needs licences that are free now but reserved for other jobs."""
        with self.reservations.without(job.id, now):
            return not self.reservations.leaves_licences(job, now)

    def barred(self, job: Job, now: float) -> Bools | None:
        """Return True for each node on which a start of the job now would delay the reserved start of another
        job. None if there is no such node.
        """
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        with self.reservations.without(job.id, now):
            return self._table.barred(shape.part, self._runtime(job), now)

    def starts_on(self, row: int, other_than: Job) -> list[tuple[float, int]]:
        """Return (reserved start, job) for each reservation of another job on this node, soonest first."""
        return [each for each in self._table.starts_on(row) if each[1] != other_than.id]

    def reserved_before(
        self, job: Job, until: float, now: float, overruled: Callable[[int], bool]
    ) -> Bools | None:
        """Return True for each node on which a reservation of another job starts before `until`. None if
        there is no such node. Reservations of waiting jobs for which `overruled` returns True do not count.
        """
        with self.reservations.without(job.id, now):
            return self._table.reserved_before(until, overruled)
