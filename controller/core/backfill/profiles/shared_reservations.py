"""Backfill reservations of one scheduler profile on nodes that other profiles also use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Protocol

from controller.core.backfill.conservative.queue_reservations import QueueReservations
from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.cluster.node_table import Bools, RowSet
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer
from controller.core.preemption.scavengers import Scavengers
from controller.core.state.state import State
from wire.names import WHOLE_GPU


class GuaranteedStart(Protocol):
    """The interface of all kinds of backfill reservations: the waiting job, and the time at which this job
    starts at the latest.
    """

    @property
    def job(self) -> int:
        """The id of the waiting job."""
        ...

    @property
    def starts_at(self) -> float:
        """The latest time at which the job starts."""
        ...


class SharedReservations:
    """The backfill reservations of one scheduler profile in a table that several profiles share.

    EASY backfill keeps a number of nodes free, but no particular nodes. Two profiles that share nodes could
    both count on the same nodes. Therefore this class reserves particular nodes and GPUs. A job starts only
    where its resources stay unreserved until its end.

    Example: profile A reserves gpu01 from 11:00 for job 7. At 10:15, profile B may start a job of 30 minutes
    on gpu01. Profile B may start a job of two hours only on GPUs that job 7 does not need.
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
    def scavengers(self) -> Scavengers | None:
        """The scavengers (jobs of the lowest priority), which may run on reserved GPUs until other jobs
        preempt them. None if the configuration has no scavengers.
        """
        return self._table.scavengers

    @property
    def edition(self) -> int:
        """Return a counter that grows when a backfill reservation in the shared table is dropped or moved,
        because other jobs may then be able to start.
        """
        return self._table.edition

    def reservation_of(self, job: int) -> BackfillReservation | None:
        """Return the backfill reservation of a job of this scheduler profile; None if the job has none."""
        return self.reservations.by_job.get(job)

    def can_reserve(self, job: Job, rows: RowSet | None, now: float) -> bool:
        """Return whether the job has, or could get, a backfill reservation that uses only nodes in `rows`. If
        `rows` is None, all nodes are allowed.
        """
        return self.reservations.can_reserve(job, rows, now)

    def due(self, now: float) -> bool:
        """Return whether a job of this scheduler profile has a reserved start that is not in the future."""
        return any(each.starts_at <= now for each in self.reservations.by_job.values())

    def reserve(self, jobs: Mapping[int, RowSet | None], now: float) -> None:
        """Reserve the earliest start for each of `jobs`, in this order. Drop all other backfill reservations
        of the scheduler profile.

        `jobs` contains, for each job, the only nodes on which it may get a reservation; None means all nodes.
        """
        reservations = self.reservations
        reservations.only_on.clear()
        for job, rows in jobs.items():
            reserved = reservations.by_job.get(job)
            if rows is not None:
                reservations.only_on[job] = rows
                if reserved is not None and reserved.rows & ~rows:
                    # Drop this reservation, because a job ahead of this job in the queue can now use one of
                    # its nodes.
                    reservations.forget(job)
        if jobs or reservations.by_job:
            reservations.update([(job, None) for job in jobs], now)

    def find(self, job: Job, barred: Bools | None, now: float, fewer: int | None = None) -> Placement | None:
        """Return the best placement of the job that delays no backfill reservation of another job. If `fewer`
        is not None, the job may start on fewer nodes than it requests, at most `fewer` (see
        QueueReservations.find_now). Return None if there is no placement.
        """
        return self.reservations.find_now(job, barred, now, fewer)

    def find_before(
        self, job: Job, later: Iterable[int], barred: Bools | None, now: float
    ) -> Placement | None:
        """Return the best placement of the job that delays no backfill reservation, except reservations of
        the jobs in `later`. If there is such a placement, drop the reservations of these jobs, so that the
        next cycle makes new ones. Return None if there is no such placement, or if no job in `later` has a
        reservation.
        """
        later = [each for each in later if each in self.reservations.by_job]
        if not later:
            return None
        with ExitStack() as stack:
            for each in later:
                stack.enter_context(self.reservations.without(each, now))
            placement = self.find(job, barred, now)
        if placement is not None:
            for each in later:
                self.reservations.forget(each)
        return placement

    def find_overruling(
        self, job: Job, overruled: Callable[[int], bool], barred: Bools | None, now: float
    ) -> Placement | None:
        """Return the best placement of the job that delays no backfill reservation of any scheduler profile,
        except reservations of jobs for which `overruled` returns True. If there is such a placement, drop the
        reservations of these jobs. Return None if there is no such placement, or if these jobs have no
        reservations.
        """
        found = [
            (queue, number)
            for queue in self._table.queues
            for number in queue.by_job
            if number != job.id and overruled(number)
        ]
        if not found:
            return None
        with ExitStack() as stack:
            for queue, number in found:
                stack.enter_context(queue.without(number, now))
            placement = self.find(job, barred, now)
        if placement is not None:
            for queue, number in found:
                queue.forget(number)
        return placement

    def delayed_by(self, job: Job, barred: Bools | None, now: float) -> BackfillReservation | None:
        """Return the first backfill reservation of another job of this scheduler profile that keeps the job
        from starting now. Return None if there is none.
        """
        for number, reserved in sorted(self.reservations.by_job.items(), key=lambda each: each[1].starts_at):
            if number != job.id:
                with self.reservations.without(number, now):
                    if self.find(job, barred, now) is not None:
                        return reserved
        return None

    def needs_reserved_licences(self, job: Job, now: float) -> bool:
        """Return whether the job needs licences that are free now but reserved for other jobs."""
        with self.reservations.without(job.id, now):
            return not self.reservations.leaves_licences(job, now)

    def barred(self, job: Job, now: float) -> Bools | None:
        """Return which nodes (True by row number) the job may not use, because its start there now would
        delay the reserved start of another job. Return None if no other job has a reservation.
        """
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        runtime = self._runtime(job)
        if self._table.scavengers is not None:
            runtime = self._table.scavengers.hold_s(job, now, runtime)
        with self.reservations.without(job.id, now):
            return self._table.barred(shape.part, runtime, now)

    def unreserved_gpus(self, duration: float, now: float) -> dict[int, int]:
        """Return the number of wholly free GPUs that no backfill reservation needs within `duration` seconds,
        by row number of the node. Nodes without a reservation are left out.
        """
        found = self._table.free_beside_all(duration, now)
        return {row: sum(milli == WHOLE_GPU for milli in free.gpus) for row, free in found.items()}

    def starts_on(self, row: int, other_than: Job) -> list[tuple[float, int]]:
        """Return (reserved start, job id) for each backfill reservation on this node, the earliest start
        first. The reservation of the job `other_than` is left out.
        """
        return [each for each in self._table.starts_on(row) if each[1] != other_than.id]

    def reserved_before(
        self, job: Job, until: float, now: float, overruled: Callable[[int], bool]
    ) -> Bools | None:
        """Return which nodes (True by row number) have a backfill reservation of another job that starts
        before `until`. Return None if there is no such node. A reservation does not count if `overruled`
        returns True for its waiting job.
        """
        with self.reservations.without(job.id, now):
            return self._table.reserved_before(until, overruled)
