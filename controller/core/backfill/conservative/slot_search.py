"""Finds the earliest start time of a job and its nodes, so that the job delays neither running jobs nor
backfill reservations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.backfill.conservative.shared_timeline import FirstStart, start_time
from controller.core.cluster.free_resources import FreeResources, free_on
from controller.core.cluster.gpus.gpu_requirements import GpuNeeds, gpu_needs_of
from controller.core.cluster.node_table import NO_ROWS, RowSet, first_rows, row_set, rows_in, rows_where
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.gpu_selection import quality_of
from controller.core.placement.placer import MAX_CACHED, Placement, Placer, Shape
from controller.core.reservations.reservations import Reservation, clear_from
from controller.core.state.barred_nodes import nodes_at_model_quota
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class Slot:
    """A possible start of a job: the time, and the nodes on which the job can start then.

    `free` contains the resources that are free while the job runs, for each of these nodes with GPUs. The key
    is the node's row number.
    """

    starts_at: float
    rows: RowSet
    free: Mapping[int, FreeResources]


class SlotSearch:
    """Finds slots (a start time and nodes) for the jobs of one queue.

    1. Take the nodes that could hold the job's request if the nodes were empty. Leave out the nodes on which
       the job would break an affinity term.
    2. Find the first time at which the licences are free.
    3. Find the first time, from this time on, when each node can start the job
       (`NodeTimelines.first_starts`), outside operators' reservations. Take the first time when enough nodes
       can start the job.
    4. If the licences are not free at this time, go back to step 2 and search from this time on. Do the same
       if too few of these nodes are in one topology domain, or have one GPU model, and the job needs this.
    5. If more nodes than needed can start the job, take nodes near each other ([topology]), or the first
       nodes by name.

    Invariant: a job that starts in a slot delays no reservation in the table. Cost: a few calls of
    `first_starts`; each time is tried once.

    Example: job 9 wants two nodes. It can start on gpu01 from 9:00, on gpu02 from 11:00, and on gpu03 from
    10:00. The slot is 10:00 on gpu01 and gpu03.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        runtime: Callable[[Job], float],
        table: ReservationTable,
        only_on: Mapping[int, RowSet],
    ) -> None:
        self._only_on = only_on
        """For some jobs, by job id, the set of nodes to which the search is restricted; see
        QueueReservations.
        """
        self._state = state
        self._placer = placer
        self._runtime = runtime
        self._table = table
        self._open: dict[PerNodeRequest, RowSet] = {}
        """The nodes that accept jobs and can hold each request. The values are valid while `_versions` stays
        the same.
        """
        self._versions = (-1, -1)

    def earliest_on_fewer(self, shape: Shape, job: Job, most: int | None, now: float) -> Slot | None:
        """Return the first slot (start time and nodes) for a job that accepts fewer nodes than `--nodes`
        (`--min-nodes`).

        This kind of job first waits for all its nodes. The slot begins at the end of this wait (the assembly
        time) or later. The slot has as many nodes as can start the job at its time, but at most `most`, the
        greatest number of nodes that quotas allow. None means no limit.

        Return None if the job does not accept fewer nodes, requires topology domains, or never fits.
        """
        least = job.ask.least
        if least is None or shape.topology_required:
            return None
        found = self.earliest(replace(shape, nodes=least), job, max(now, accepts_fewer_from(job)))
        if found is None or most == least:
            return found
        starts = self._starts(self._suited(shape.part, job), shape.part, job, found.starts_at, least)
        ready = sum(rows.bit_count() for start, rows, _ in starts if start == found.starts_at)
        nodes = min(ready, shape.nodes if most is None else most)
        for count in range(nodes, least, -1):
            wider = self.earliest(replace(shape, nodes=count), job, found.starts_at)
            # Return the slot on `count` nodes only if it begins at the same time. This slot can begin later,
            # because a job that needs one GPU model cannot combine all `ready` nodes.
            if wider is not None and wider.starts_at == found.starts_at:
                return wider
        return found

    def _suited(self, part: PerNodeRequest, job: Job) -> RowSet:
        """Return the nodes that could hold the request if the nodes were empty. Four kinds of nodes are left
        out:
        1. Nodes on which a job with this request would break an affinity term of the request, of a running
           job or of a job with a reservation.
        2. Nodes with a GPU model for which the tenants of the job have no quota left.
        3. If the job has a set of nodes in `_only_on`: all nodes outside this set.
        4. Nodes outside the operator's reservation that the job names (`--reservation`).
        """
        nodes = self._state.nodes
        if self._versions != (nodes.layout_version, nodes.status_version) or len(self._open) >= MAX_CACHED:
            self._open.clear()
            self._versions = nodes.layout_version, nodes.status_version
        rows = self._open.get(part)
        if rows is None:
            rows = self._open[part] = rows_where(self._placer.possible_nodes(part))
        suited = self._table.affinity.suited(part, nodes)
        rows = rows if suited is None else rows & rows_where(suited)
        rows &= self._only_on.get(job.id, rows)
        outside = self._state.reservations.rows_outside(nodes, job.spec, job.user)
        if outside is not None:
            rows &= ~rows_where(outside)
        full = nodes_at_model_quota(self._state, job)
        return rows if full is None else rows & ~rows_where(full)

    def _starts(
        self, among: RowSet, part: PerNodeRequest, job: Job, moment: float, enough: int
    ) -> list[FirstStart]:
        """Return for each node of `among` the first time, at or after `moment`, when the job can start on the
        node.

        The nodes are sorted by this time. The list may end after `enough` nodes.
        """
        nodes, duration, timelines = self._state.nodes, self._runtime(job), self._table.nodes
        against = self._state.reservations.excluding(job.user, job.spec.project)
        needs, reserved = gpu_needs_of(part, nodes.columns), NO_ROWS
        for each in against:
            reserved |= row_set(self._state.reservations.rows(nodes, each))
        starts = timelines.first_starts(part, needs, duration, moment, among & ~reserved, enough)
        if among & reserved:
            between = [
                self._between(row, part, needs, job, moment, against) for row in rows_in(among & reserved)
            ]
            starts += [found for found in between if found is not None]
            starts.sort(key=start_time)
        return starts

    def earliest(self, shape: Shape, job: Job, now: float) -> Slot | None:
        """Return the first slot (start time and nodes), from `now` on, in which the job can start.

        The slot has `shape.nodes` nodes. Return None if the job can never start on this many nodes.
        """
        part, domains, moment = shape.part, self._placer.required_grouping(shape), now
        among, wanted, runtime = self._suited(part, job), job.ask.licences, self._runtime(job)
        near = self._placer.nearness_of(shape) if domains is None else None
        enough = shape.nodes if domains is None and near is None else among.bit_count()
        own = self._state.reservations.named_by(job.spec, job.user)
        until = NEVER if own is None or own.spec.every_s is not None else own.ends_at
        while True:
            licensed = self._table.licences.first_start(wanted, runtime, moment)
            if licensed is None:
                return None
            starts = self._starts(among, part, job, licensed, enough)
            moment, rows = _start_of_nodes(starts, shape.nodes)
            if moment == NEVER or moment >= until:
                return None
            if self._table.licences.first_start(wanted, runtime, moment) != moment:
                continue
            if domains is not None and rows.bit_count() >= shape.nodes:
                chosen = domains.choose(np.array(list(rows_in(rows)), dtype=np.intp), None, shape.nodes)
                if not chosen and starts[0][0] < moment:
                    # `rows` contains only the nodes whose first start is exactly `moment`. Search again from
                    # `moment` on, so that nodes with an earlier first start are also tried.
                    continue
                if not chosen:
                    later = [start for start, _, _ in starts if start > moment]
                    if not later:
                        return None
                    moment = min(later)
                    continue
                rows = row_set(chosen)
            if rows.bit_count() >= shape.nodes:
                if near is not None:
                    rows = row_set(near.choose(np.array(list(rows_in(rows))), None, shape.nodes))
                rows = first_rows(rows, shape.nodes)
                return Slot(moment, rows, _free_at(starts, moment, rows) if part.wants_gpus else {})

    def placement_in(self, slot: Slot, part: PerNodeRequest, old: BackfillReservation | None) -> Placement:
        """Return the placement of a job in a slot: the nodes of the slot, and GPUs on these nodes.

        `old` is the job's present reservation, or None. If a new choice of GPUs would give the same
        placement, return the placement of `old`, because choosing GPUs is slow.
        """
        # Do not use the old placement if the job needs part of a GPU, or if several scheduler profiles share
        # the table: the choice of GPUs then also depends on the GPUs that are free now.
        lasting = not part.wants_gpus or (part.gpus and not self._table.shared)
        if old is not None and lasting and (old.rows, old.free) == (slot.rows, slot.free):
            return old.placement
        nodes = self._state.nodes.rows
        chosen = [
            self._placer.allocate(part, nodes[row], self._gpus_to_choose(part, row, slot.free.get(row)))
            for row in rows_in(slot.rows)
        ]
        allocations = tuple(allocation for allocation, _ in chosen)
        return Placement(allocations, quality_of([choice for _, choice in chosen]))

    def _gpus_to_choose(
        self, part: PerNodeRequest, row: int, free: FreeResources | None
    ) -> FreeResources | None:
        """Return the free resources of a node from which the caller chooses the GPUs for a backfill
        reservation.

        If several scheduler profiles share the nodes, return only GPUs that are busy now, if there are
        enough. Other profiles can then use the idle GPUs until the reservation starts.
        """
        if free is None or not self._table.shared or not part.wants_gpus:
            return free
        nodes = self._state.nodes
        idle = free_on(nodes, row).gpus
        busy = replace(
            free, gpus=[0 if now >= then else then for now, then in zip(idle, free.gpus, strict=True)]
        )
        return busy if busy.fits(part, gpu_needs_of(part, nodes.columns), row) else free

    def _between(
        self,
        row: int,
        part: PerNodeRequest,
        needs: GpuNeeds,
        job: Job,
        since: float,
        against: list[Reservation],
    ) -> FirstStart | None:
        """Return the first time, at or after `since`, when the job can start on the node `row`. The job must
        end before the next reservation of an operator begins there. Return None if there is no such time.

        `against` contains the operators' reservations that do not admit the job.
        """
        here = self._state.reservations.on_row(self._state.nodes, row, against)
        runtime, timelines = self._runtime(job), self._table.nodes
        while True:
            found = timelines.first_starts(part, needs, runtime, since, 1 << row, 1)
            if not found:
                return None
            clear = clear_from(here, found[0][0], self._state.assumed_span(job))
            if clear == found[0][0]:
                return found[0]
            if clear == NEVER:
                return None
            since = clear


def _free_at(starts: list[FirstStart], moment: float, among: RowSet) -> dict[int, FreeResources]:
    return {
        rows.bit_length() - 1: free
        for start, rows, free in starts
        if start == moment and free is not None and rows & among
    }


def _start_of_nodes(starts: list[FirstStart], nodes: int) -> tuple[float, RowSet]:
    """Return the first time at which `nodes` nodes can start a job. Also return the nodes whose own first
    start is exactly this time.

    `starts` contains the first start of each node, sorted by time. Return (NEVER, no nodes) if `starts` has
    too few nodes.
    """
    found, moment, rows = 0, NEVER, NO_ROWS
    for start, each, _ in starts:
        if start != moment:
            if found >= nodes:
                break
            moment, rows = start, NO_ROWS
        found += each.bit_count()
        rows |= each
    return (moment, rows) if found >= nodes else (NEVER, NO_ROWS)
