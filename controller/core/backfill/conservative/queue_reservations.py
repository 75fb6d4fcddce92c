"""The backfill reservations of one queue. Conservative backfill reserves a start for every waiting job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.backfill.conservative.slot_search import SlotSearch
from controller.core.cluster.node_table import Bools, RowSet, either_mask
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.state.state import State


class QueueReservations:
    """Gives each waiting job the earliest slot (start time and nodes) that delays no existing backfill
    reservation.

    1. `update` drops the reservations of jobs that no longer wait, that a limit keeps from starting, or that
       are now behind the depth (the greatest number of jobs with reservations).
    2. If resources became free earlier than expected, go through the reservations in queue order. Move each
       reservation to its earliest slot while all other reservations stay. Reservations that start now are not
       moved. If all jobs have ended at their expected ends, no reservation can start earlier, and this step
       is skipped.
    3. Jobs without a reservation get one, in queue order.

    Invariant: while no node fails and jobs end by their limits, a reservation moves only to an earlier start.
    Cost: O(waiting jobs) slot searches after resources became free early, otherwise one for each new job.

    Example: a node of 8 GPUs is busy until 10:00. Job 2 (8 GPUs, 2 h) has a reservation at 10:00, and job 3
    (8 GPUs, 1 h) at 12:00. The running job ends early, at 9:00. The reservation of job 2 moves to 9:00, and
    that of job 3 to 11:00.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        runtime: Callable[[Job], float],
        table: ReservationTable | None = None,
    ) -> None:
        self._runtime = runtime
        self.by_job: dict[int, BackfillReservation] = {}
        self._state = state
        self._placer = placer
        self.table = ReservationTable(state) if table is None else table
        self.table.queues.append(self)
        self.refused: set[int] = set()
        """Jobs that could not start at their reserved time. These jobs get no backfill reservation until
        `retry_refused` is called.
        """
        self._seen = (-1, -1)
        """The values of `Nodes.room_version` and of `edition` of the reservation table at the last update."""
        self._openings = (-1, -1, True)
        """The result of `_openings_now` when reservations were last moved to earlier starts (step 2)."""
        self.only_on: dict[int, RowSet] = {}
        """For some jobs, by job id, the only nodes on which the job may get a reservation. All other jobs may
        get reservations on all nodes.
        """
        self._slots = SlotSearch(state, placer, runtime, self.table, self.only_on)

    def resume(self, other: QueueReservations) -> None:
        """Copy the backfill reservations from `other`, the object for the same queue on another copy of the
        cluster state.

        Copy nothing if nodes or operators' reservations have changed since the last cycle of `other`.
        """
        if self.table.resume(other.table):
            self.by_job, self.refused = dict(other.by_job), set(other.refused)
            self.only_on.update(other.only_on)
            current = other._seen == (other._state.nodes.room_version, other.table.edition)
            self._seen = (self._state.nodes.room_version, self.table.edition) if current else (-1, -1)
            affinity, theirs = self._state.nodes.job_affinity, other._state.nodes.job_affinity
            same = other._openings[1] == theirs.version
            self._openings = (other._openings[0], affinity.version if same else -1, other._openings[2])

    def update(self, jobs: Iterable[tuple[int, int | None]], now: float) -> None:
        """Drop the backfill reservations of jobs that are not in `jobs`, move the other reservations to
        earlier starts if possible, and make reservations for jobs without one. These are steps 1 to 3 of the
        class docstring.

        `jobs` contains (job id, most nodes) for each waiting job that may have a reservation, in queue order.
        Jobs that a limit keeps from starting, and jobs behind the depth (`Backfill.depth`), are not in
        `jobs`. `most nodes` is the greatest number of nodes on which quotas let the job start. None means all
        nodes that the job requests.
        """
        order = dict(jobs)
        self.table.refresh(now)
        for job in [job for job in self.by_job if job not in order]:
            self.forget(job)
        if self._seen != (self._state.nodes.room_version, self.table.edition) and self._may_gain(order):
            self._openings = self._openings_now()
            self._pull_forward(order, now)
        for job, most in order.items():
            if job not in self.by_job and job not in self.refused:
                self.reserve(self._state.jobs[job], most, now)
        self._seen = self._state.nodes.room_version, self.table.edition

    def _may_gain(self, order: Mapping[int, int | None]) -> bool:
        """Return whether a backfill reservation may be able to move to an earlier start. If none can, step 2
        of the class docstring is skipped.
        """
        return (
            self.table.shared
            or self._openings[2]
            or self._openings != self._openings_now()
            or any(
                each.most_nodes != order[job]
                or each.ends_at != each.starts_at + self._runtime(self._state.jobs[job])
                for job, each in self.by_job.items()
            )
        )

    def _openings_now(self) -> tuple[int, int, bool]:
        """Return three values that change when a backfill reservation may be able to move to an earlier
        start.

        The values are the counter `openings` of the reservation table, the version of the affinity index, and
        whether a job waits for its preemption victims to leave.
        """
        return self.table.openings, self._state.nodes.job_affinity.version, bool(self._state.claims)

    def _pull_forward(self, order: Mapping[int, int | None], now: float) -> None:
        for job, most in order.items():
            reserved = self.by_job.get(job)
            if reserved is None and job not in self.refused:
                self.reserve(self._state.jobs[job], most, now)
            elif reserved is not None and reserved.starts_at > now:
                del self.by_job[job]
                self.table.set_aside(reserved)
                self.reserve(self._state.jobs[job], most, now, reserved)
                if self.by_job.get(job) is not reserved:
                    self.table.note_move()

    def reserve(
        self, job: Job, most: int | None, now: float, aside: BackfillReservation | None = None
    ) -> None:
        """Reserve the earliest start of the job, if there is one.

        `most` is the greatest number of nodes that quotas allow; None means all. `aside` is the job's present
        reservation, which the reservation table ignores during the search. The reservation that the search
        finds replaces `aside`. If it has the same values as `aside`, the job keeps `aside`.
        """
        new = self._best(job, most, now, aside)
        if aside is not None and new is aside:
            self.by_job[job.id] = aside
            self.table.put_back(aside)
            return
        if aside is not None:
            self.table.drop_aside()
        if new is not None:
            self.by_job[job.id] = new
            self.table.add(new)

    def _best(
        self,
        job: Job,
        most: int | None,
        now: float,
        aside: BackfillReservation | None,
        latest_start: float = NEVER,
    ) -> BackfillReservation | None:
        """Return the backfill reservation with the earliest start, or None if the job cannot start by
        `latest_start`.

        If the job accepts fewer nodes than `--nodes` and can then start earlier, the reservation is for fewer
        nodes. `most` is the greatest number of nodes that quotas allow; None means all. `aside` is the job's
        present reservation, which the table ignores during the search. Return `aside` itself if no value of
        the reservation would change.
        """
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        slot = self._slots.earliest(shape, job, now) if most is None else None
        fewer = None if job.ask.least is None else self._slots.earliest_on_fewer(shape, job, most, now)
        on_fewer = fewer is not None and (slot is None or fewer.starts_at < slot.starts_at)
        slot = fewer if on_fewer else slot
        if slot is None or slot.starts_at > latest_start:
            return None
        ends_at, part = slot.starts_at + self._runtime(job), shape.part
        placement = self._slots.placement_in(slot, part, aside)
        values = slot.starts_at, ends_at, slot.rows, placement, part, on_fewer, job.ask.licences, most
        # Compare the values before a BackfillReservation is created, because most searches find `aside`
        # again.
        if aside is not None and values == aside.values:
            return aside
        return BackfillReservation(job.id, *values, slot.free)

    def can_reserve(self, job: Job, rows: RowSet | None, now: float) -> bool:
        """Return whether the job has, or could get, a reservation that uses only nodes in `rows`. None: all
        nodes.

        The job can get no reservation if no time is known at which enough of these nodes are free.
        """
        reserved = self.by_job.get(job.id)
        if reserved is not None and (rows is None or not reserved.rows & ~rows):
            return True
        before = self.only_on.pop(job.id, None)
        if rows is not None:
            self.only_on[job.id] = rows
        try:
            return self._best(job, None, now, None) is not None
        finally:
            self.only_on.pop(job.id, None)
            if before is not None:
                self.only_on[job.id] = before

    def reserve_now(self, job: Job, now: float) -> bool:
        """Make a reservation that starts now if the job then delays no other reservation. Return whether the
        reservation was made. The caller must then start the job at once.
        """
        new = self._best(job, None, now, None, latest_start=now)
        if new is None:
            return False
        self.by_job[job.id] = new
        self.table.add(new)
        return True

    def forget(self, job: int) -> None:
        """Drop the backfill reservation of the job, if there is one. If the job still waits, the next
        `update` makes a new reservation.
        """
        self.refused.discard(job)
        reserved = self.by_job.pop(job, None)
        if reserved is not None:
            self.table.remove(reserved)
            self.table.note_move()
            # Reset the stored versions, so that the next `update` searches earlier starts for all jobs.
            self._seen = (-1, -1)

    def forget_all(self) -> None:
        for job in list(self.by_job):
            self.forget(job)

    def forget_gone(self) -> None:
        """Drop the reservations of jobs that no longer wait."""
        for job in [job for job in self.by_job if job not in self._state.queue]:
            self.forget(job)

    @contextmanager
    def without(self, job: int, now: float) -> Iterator[None]:
        """Remove the job's reservation from the reservation table for the duration of a `with` block."""
        self.table.sync(now)
        reserved = self.by_job.pop(job, None)
        if reserved is None:
            yield
            return
        self.table.remove(reserved)
        try:
            yield
        finally:
            self.by_job[job] = reserved
            self.table.add(reserved)

    def find_now(
        self, job: Job, barred: Bools | None, now: float, fewer: int | None = None
    ) -> Placement | None:
        """Return the best placement of the job that uses no barred node and delays no backfill reservation of
        another job. Return None if there is none. `barred` is True for each node that must not be used.

        With `fewer`, the job may start on fewer nodes than it requests. `fewer` is then the greatest number
        of nodes.
        """
        shape, runtime = self._placer.shape(job.ask), self._runtime(job)
        if shape is None:
            return None
        if self.table.scavengers is not None:
            runtime = self.table.scavengers.hold_s(job, now, runtime)
        with self.without(job.id, now):
            if not self.leaves_licences(job, now):
                return None
            barred = either_mask(barred, self.table.barred(shape.part, runtime, now))
            if fewer is None:
                placement = self._placer.find(job.ask, barred)
            else:
                placement = self._placer.find_fewer(job.ask, barred, fewer)
            return placement and self._on_unreserved_gpus(shape, placement, runtime, now)

    def _on_unreserved_gpus(
        self, shape: Shape, placement: Placement, runtime: float, now: float
    ) -> Placement:
        """Return `placement` with GPUs on the same nodes that no reservation needs in the next `runtime`
        seconds.
        """
        nodes = self._state.nodes.by_name
        rows = [nodes[each.node].row for each in placement.allocations]
        free = self.table.free_beside(rows, runtime, now)
        return self._placer.allocate_rows(shape, rows, free) if free else placement

    def leaves_licences(self, job: Job, now: float) -> bool:
        """Return whether the job can start without using licences that are reserved for another job.

        Also return True if too few licences are free now. The job cannot start then either, but the pending
        reason is the lack of licences and not a reservation.
        """
        wanted = job.ask.licences
        return self._state.licences.insufficient(wanted) or self.table.leaves_licences(
            wanted, self._runtime(job), now
        )

    def next_partial_start(self, now: float) -> float:
        """Return the next reserved start of a job on fewer nodes than it requests; NEVER if there is none."""
        starts = (each.starts_at for each in self.by_job.values() if each.on_fewer_nodes)
        return min((start for start in starts if start > now), default=NEVER)

    def due_jobs(self, now: float) -> list[int]:
        """Return the ids of the jobs whose reserved start has come."""
        return [job for job, reserved in self.by_job.items() if reserved.starts_at <= now]

    def take_due(self, job: int) -> Placement:
        """Return the reserved placement of a job whose reserved start has come. From now on the reservation
        table counts the job as running.

        The caller must then start the job or call `refuse`.
        """
        reserved = self.by_job.pop(job)
        self.table.start(self._state.jobs[job], reserved)
        return reserved.placement

    def refuse(self, job: int, now: float) -> None:
        """Undo `take_due` for a job that may not start, for example because of a quota. The job gets no new
        reservation until `retry_refused` is called.
        """
        self.table.cancel_start(job, now)
        self.table.note_move()
        self.refused.add(job)
        self._seen = (-1, -1)

    def retry_refused(self) -> None:
        """Allow jobs that could not start at their reserved time to get reservations again."""
        self.refused.clear()
