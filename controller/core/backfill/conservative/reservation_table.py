"""The reservation table of conservative backfill: running jobs and backfill reservations on all nodes over
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from controller.core.backfill.conservative.expected_affinity import ExpectedAffinity
from controller.core.backfill.conservative.node_timelines import NodeTimelines
from controller.core.backfill.conservative.reservation import BackfillReservation, RunningAttempt, overdue_end
from controller.core.backfill.conservative.shared_timeline import SharedTimeline
from controller.core.backfill.conservative.timeline import LicenceTimelines
from controller.core.cluster.free_resources import FreeResources, free_on
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.licences import holds_licences
from controller.core.cluster.node_table import NO_ROWS, Bools, rows_in
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.model.request import LicenceCounts, PerNodeRequest
from controller.core.state.state import State

if TYPE_CHECKING:
    from controller.core.backfill.conservative.queue_reservations import QueueReservations
    from controller.core.preemption.scavengers import Scavengers

_STALE = (-1, -1, -1)


class ReservationTable:
    """The free resources of nodes and licences over time, after running jobs and backfill reservations are
    subtracted.

    1. The resources of a running attempt are subtracted until its expected end. The resources of a
       reservation are subtracted from its start to its end.
    2. `sync` updates the table from the state. When a job ends early, its resources are added to the free
       resources again, for the rest of its planned time. The allocations of a job that has started or grown
       are subtracted.
    3. The table is built again from the running jobs when nodes or operators' reservations have changed, or
       when a job is overdue. All reservations are then made again: in queue order, or by their starts, the
       soonest first, if several queues share the table.

    Invariant: no free amount is ever negative, so no job can delay a reservation. Cost: `sync` is O(nodes
    changed since the last `sync`). Building the table is O(running jobs + reservations).

    Versions: `_versions` contains `Nodes.layout_version`, `Nodes.status_version` and the version of
    operators' reservations at the last build. If one of these versions has changed, the table is stale and is
    built again. `_room_version` and `_change_count` are the values of the node counters at the last `sync`.
    `edition` grows when a reservation is dropped or moved, because other queues that share the table may then
    find earlier starts. `openings` grows when resources become free earlier than expected (a job ended early,
    or a reservation was dropped or moved), and when the table is built again.

    Example: node gpu01 is busy until 10:00, and job 7 reserves it from 10:00 to 12:00. A job of 30 minutes
    needs the whole node. This job can start at 12:00, or at 10:00 if the reservation of job 7 is dropped.
    """

    def __init__(self, state: State) -> None:
        self.nodes = NodeTimelines({}, 0.0, (), SharedTimeline(0.0, {}))
        self.licences = LicenceTimelines(0.0, {})
        self.affinity = ExpectedAffinity()
        self.queues: list[QueueReservations] = []
        self.edition = 0
        self.openings = 0
        self._state = state
        self.scavengers: Scavengers | None = None
        """The scavengers (jobs of the lowest priority). The GPUs of a scavenger count as free as soon as
        other jobs may preempt the scavenger. None: the GPUs of every running job count as used until its
        expected end.
        """
        self._running: dict[int, RunningAttempt] = {}
        self._first_end = NEVER
        """No running job is expected to end before this time."""
        self._reserved_rows: Counter[int] = Counter()
        """The number of backfill reservations on each node, by row number. Counted only if several queues
        share the table.
        """
        self._unread: list[int] = []
        """The row numbers of nodes whose changes the copied table had not read when `resume` copied it. The
        next `_read_changes` reads them.
        """
        self._now = 0.0
        self._room_version = -1
        self._change_count = 0
        self._versions = _STALE

    @property
    def shared(self) -> bool:
        """True if several queues use the table."""
        return len(self.queues) > 1

    # Methods that update the table from the state

    def refresh(self, now: float) -> None:
        """Update the table with the changes of the cluster state. Drop all times before `now` from the table.

        If a job should have ended by now but still runs, build the table again with a later expected end for
        this job.
        """
        if self._has_overdue(now):
            self._versions = _STALE
        self.sync(now)
        self.nodes.forget_past(now)
        self.licences.forget_past(now)

    def sync(self, now: float) -> None:
        """Bring the table up to date with the state. Read the changes since the last `sync`, or build the
        table again.
        """
        if self._stale() or not self._read_changes(now):
            self._build(now)

    def begin_pass(self, now: float) -> None:
        """Build the table again if a job has not started at its reserved start, because its reservation is
        then out of date.

        The method is called at the start of each scheduling cycle if several scheduler profiles share the
        table.
        """
        self._now = now
        if any(each.starts_at < now for queue in self.queues for each in queue.by_job.values()):
            self._versions = _STALE
            self.sync(now)

    def resume(self, other: ReservationTable) -> bool:
        """Copy the contents of `other`, the reservation table of another copy of the cluster state, and
        return True.

        A copy is faster than building the table again. If `other` itself is out of date and would have to be
        built again, change nothing and return False.
        """
        nodes, theirs = self._state.nodes, other._state.nodes
        if other._stale():
            return False
        unread = theirs.changed_since(other._change_count)
        if unread is None:
            return False
        self.nodes = other.nodes.copy(nodes)
        self.licences, self.affinity = other.licences.copy(), other.affinity.copy()
        self._running, self._first_end = dict(other._running), other._first_end
        self._reserved_rows = Counter(other._reserved_rows)
        self.edition, self.openings, self._now = other.edition, other.openings, other._now
        self._versions = self._current_versions()
        self._room_version = nodes.room_version if other._room_version == theirs.room_version else -1
        self._change_count, self._unread = nodes.change_count, [*other._unread, *unread]
        return True

    def _current_versions(self) -> tuple[int, int, int]:
        nodes = self._state.nodes
        return nodes.layout_version, nodes.status_version, self._state.reservations.version

    def _stale(self) -> bool:
        """Return whether the table must be built again, because nodes or operators' reservations have
        changed.
        """
        # Read `columns` before the versions, because this can rebuild the node table and so increase
        # `layout_version`.
        height = self._state.nodes.columns.height
        return self._versions != self._current_versions() or len(self.nodes) != height

    def _has_overdue(self, now: float) -> bool:
        if now < self._first_end:
            return False
        self._first_end = min((each.ends_at for each in self._running.values()), default=NEVER)
        jobs = self._state.jobs
        return any(
            each.ends_at <= now and not each.yields and job in jobs and holds_licences(jobs[job])
            for job, each in self._running.items()
        )

    def _build(self, now: float) -> None:
        """Build the table again from the running jobs, and make all backfill reservations again."""
        self.openings += 1
        state, nodes = self._state, self._state.nodes
        self.nodes = NodeTimelines.of(nodes, now)
        self._versions = self._current_versions()
        self._room_version, self._change_count = nodes.room_version, nodes.change_count
        self._unread.clear()
        licences = state.licences
        self.licences = LicenceTimelines(now, {name: licences.free(name) for name in licences.total})
        self.affinity = ExpectedAffinity()
        self._running.clear()
        for end, number in state.releases:
            job = state.jobs[number]
            end = end if end > now else overdue_end(end, now)
            ends_at = self._held_until(job, end, now)
            allocations = {each.node: each for each in state.released_by(job)}
            running = RunningAttempt(
                job.attempt, ends_at, allocations, job.ask.licences, ends_at < end, not job.unended
            )
            self._note_running(number, running)
            self._give_running(running, ends_at, NEVER, 1)
        self._reserve_again(now)

    def _reserve_again(self, now: float) -> None:
        """Drop all backfill reservations. If several queues share the table, make the reservations again,
        soonest start first.

        With one queue, `QueueReservations.update` makes the reservations again.
        """
        old = [
            (each.starts_at, job, each.most_nodes, queue)
            for queue in self.queues
            for job, each in queue.by_job.items()
        ]
        self._reserved_rows.clear()
        for queue in self.queues:
            queue.by_job.clear()
            queue.refused.clear()
        if self.shared:
            self.edition += 1
            for _, job, most, queue in sorted(old, key=lambda each: each[:2]):
                if job in self._state.queue:
                    queue.reserve(self._state.jobs[job], most, now)

    def _read_changes(self, now: float) -> bool:
        """Update the timelines with the changes since the last `sync`: subtract the resources of jobs that
        started or grew, and add the resources of jobs that ended.

        Return False if the table must be built again instead.
        """
        nodes, jobs = self._state.nodes, self._state.jobs
        if self._room_version != nodes.room_version:  # Resources became free, so a job may have ended.
            ran = [number for number, each in self._running.items() if not each.waits_for_victims]
            for number in [each for each in ran if each not in jobs or not jobs[each].unended]:
                self._return(number, now)
            self._room_version = nodes.room_version
        rows = nodes.changed_since(self._change_count)
        if rows is None:
            return False
        for node in [nodes.rows[row] for row in sorted({*rows, *self._unread})]:
            for number in node.held:
                job, known = jobs[number], self._running.get(number)
                if known is None:
                    ends_at = self._held_until(job, job.expected_end, now)
                    allocations = {each.node: each for each in self._state.released_by(job)}
                    yields = ends_at < job.expected_end
                    started = RunningAttempt(job.attempt, ends_at, allocations, job.ask.licences, yields)
                    self._note_running(number, started)
                    self._give_running(started, now, ends_at, -1)
                elif known.attempt != job.attempt:
                    return False
                elif node.name not in known.allocations:  # An elastic job has started on one more node.
                    more: Allocation = node.held[number]
                    grown = {**known.allocations, node.name: more}
                    self._running[number] = replace(known, allocations=grown)
                    self.nodes.give((more,), now, known.ends_at, -1)
        self._change_count = nodes.change_count
        self._unread.clear()
        return True

    def _held_until(self, job: Job, end: float, now: float) -> float:
        """Return the time until which a running job keeps its resources from other jobs. This time is the
        expected end `end` of the job. For a scavenger (job of the lowest priority) it is the time from which
        other jobs may preempt the scavenger.
        """
        if self.scavengers is None or not job.unended:
            return end
        return min(end, max(now, self.scavengers.yields_from(job)))

    def note_preemptible(self, job: int) -> None:
        """Build the table again at the next `sync` if a running job has begun or ceased to yield. A running
        job yields if all other jobs may preempt it. Example: a scavenger no longer yields when it inherits
        the priority of a job that depends on it.
        """
        if self.scavengers is None:
            return
        known, running = self._running.get(job), self._state.jobs[job]
        yields = self.scavengers.yields_from(running) < running.expected_end
        if known is None or known.yields != yields:
            self._versions = _STALE
            self.note_move()

    def _note_running(self, job: int, running: RunningAttempt) -> None:
        self._running[job] = running
        self._first_end = min(self._first_end, running.ends_at)

    def _return(self, job: int, now: float) -> None:
        ended = self._running.pop(job)
        self.openings += now < ended.ends_at
        self._give_running(ended, now, ended.ends_at, 1)

    def _give_running(self, running: RunningAttempt, start: float, end: float, sign: int) -> None:
        if start < end:
            self.nodes.give(running.allocations.values(), start, end, sign)
            self.licences.give(running.licences, start, end, sign)

    # Methods that write reservations

    def add(self, reservation: BackfillReservation) -> None:
        self._count(reservation, 1)
        self.nodes.reserve(reservation)

    def remove(self, reservation: BackfillReservation) -> None:
        """Remove a reservation. If the table is out of date, leave the timelines unchanged, because the next
        `sync` builds them again.
        """
        self.openings += 1
        if not self._stale():
            self._count(reservation, -1)
            self.nodes.release(reservation)

    def set_aside(self, reservation: BackfillReservation) -> None:
        """Treat the resources of this reservation as free until `put_back` or `drop_aside` is called. The
        caller then searches an earlier start for the job of the reservation.
        """
        self._count(reservation, -1)
        self.nodes.set_aside(reservation)

    def put_back(self, reservation: BackfillReservation) -> None:
        """End `set_aside` without a change. The reservation keeps its start and its nodes."""
        self._count(reservation, 1)
        self.nodes.put_back()

    def drop_aside(self) -> None:
        """End `set_aside` and remove the reservation, because its job gets another start or other nodes."""
        self.openings += 1
        self.nodes.drop_aside()

    def note_move(self) -> None:
        """Increase `edition` if several scheduler profiles share the table, because a reservation was dropped
        or moved. The other scheduler profiles then search earlier starts.
        """
        self.edition += self.shared

    def start(self, job: Job, reservation: BackfillReservation) -> None:
        """Count the resources of the job as used by a running attempt, and no longer as reserved."""
        if reservation.part.social:
            self.affinity.add(reservation.part, self._rows(reservation), -1)
        allocations = {each.node: each for each in reservation.placement.allocations}
        ends_at, licences = reservation.ends_at, reservation.licences
        attempt = self._state.skipped.next_attempt(job.id, job.attempt)
        self._note_running(job.id, RunningAttempt(attempt, ends_at, allocations, licences))
        if self.shared:
            self._count_rows(reservation, -1)

    def cancel_start(self, job: int, now: float) -> None:
        """Undo `start` for a job that does not start. Remove its resources from the table."""
        self._return(job, now)

    def _count(self, reservation: BackfillReservation, sign: int) -> None:
        """Add a reservation (`sign` 1) or remove a reservation (`sign` -1) in `affinity`, in the licence
        timelines and, if several queues share the table, in the number of reservations by node. Do not change
        the timelines of nodes.
        """
        if reservation.part.social:
            self.affinity.add(reservation.part, self._rows(reservation), sign)
        if reservation.licences:
            self.licences.give(reservation.licences, reservation.starts_at, reservation.ends_at, -sign)
        if self.shared:
            self._count_rows(reservation, sign)

    def _count_rows(self, reservation: BackfillReservation, sign: int) -> None:
        for row in self._rows(reservation):
            self._reserved_rows[row] += sign
            if not self._reserved_rows[row]:
                del self._reserved_rows[row]

    # Methods for scheduler profiles: several profiles use one table

    @property
    def next_at(self) -> float:
        """The earliest reserved start of any job after the present cycle; NEVER if there is none."""
        starts = (each.starts_at for queue in self.queues for each in queue.by_job.values())
        return min((start for start in starts if start > self._now), default=NEVER)

    def barred(self, part: PerNodeRequest, duration: float, now: float) -> Bools | None:
        """Return which nodes (True by row number) the job may not use, because a start there now would delay
        a backfill reservation. The job has the request `part` and runs for `duration` seconds. Return None if
        no node has a reservation.
        """
        rows = self._rows_with_reservations()
        if not rows:
            return None
        columns = self._state.nodes.columns
        needs, barred = gpu_needs_of(part, columns), np.zeros(columns.height, dtype=np.bool_)
        for row, free in self.free_beside(rows, duration, now).items():
            barred[row] = not free.fits(part, needs, row)
        return barred

    def leaves_licences(self, wanted: LicenceCounts, duration: float, now: float) -> bool:
        """Return whether the licences in `wanted` are free and unreserved for the next `duration` seconds."""
        if not wanted:
            return True
        self.sync(now)
        return self.licences.first_start(wanted, duration, now) == now

    def free_beside(self, rows: Iterable[int], duration: float, now: float) -> dict[int, FreeResources]:
        """Return the free resources of each node in `rows` that has a backfill reservation, by row number.
        Nodes without a reservation are left out.

        Resources count as free if no job uses them now and no reservation needs them in the next `duration`
        seconds.
        """
        self.sync(now)
        nodes, reserved = self._state.nodes, self._rows_with_reservations()
        return {
            row: self.nodes.least(row, now, duration).minimum(free_on(nodes, row))
            for row in rows
            if row in reserved
        }

    def free_beside_all(self, duration: float, now: float) -> dict[int, FreeResources]:
        """Return the result of `free_beside` for all nodes that have a backfill reservation."""
        return self.free_beside(self._rows_with_reservations(), duration, now)

    def _rows_with_reservations(self) -> Collection[int]:
        """Return the row numbers of the nodes with a backfill reservation."""
        if self.shared:
            return self._reserved_rows
        rows = NO_ROWS
        for queue in self.queues:
            for each in queue.by_job.values():
                rows |= each.rows
        return frozenset(rows_in(rows))

    def reserved_before(self, until: float, overruled: Callable[[int], bool]) -> Bools | None:
        """Return which nodes (True by row number) have a backfill reservation that starts before `until`.
        Return None if no node has such a reservation. A reservation does not count if `overruled` returns
        True for its waiting job.
        """
        found = [
            row
            for queue in self.queues
            for job, each in queue.by_job.items()
            if each.starts_at < until and not overruled(job)
            for row in self._rows(each)
        ]
        if not found:
            return None
        reserved = np.zeros(self._state.nodes.columns.height, dtype=np.bool_)
        reserved[found] = True
        return reserved

    def starts_on(self, row: int) -> list[tuple[float, int]]:
        """Return (reserved start, job) for each backfill reservation on this node, the soonest first."""
        return sorted(
            (each.starts_at, job)
            for queue in self.queues
            for job, each in queue.by_job.items()
            if row in self._rows(each)
        )

    def _rows(self, reservation: BackfillReservation) -> list[int]:
        by_name = self._state.nodes.by_name
        names = (each.node for each in reservation.placement.allocations)
        return [by_name[name].row for name in names if name in by_name]
