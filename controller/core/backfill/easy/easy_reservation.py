"""EASY backfill: guarantees a start to the first waiting job, and finds the resources that this job does not
need.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.job_affinity import JobAffinityIndex
from controller.core.cluster.node_table import ABSENT, Bools
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.model.request import LicenceCounts, PerNodeRequest, ResourceRequest
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.state.state import State


def _planned_ends(state: State) -> list[tuple[float, int]]:
    """Return the ends that a reservation may rely on if backfill uses predictions, sorted by time, as (end,
    job). A job with a time limit ends at its limit.

    A prediction that is too long would let fewer jobs start before the reservation. A prediction that is too
    short would move the reservation again and again. Both cost more than the earlier start brings
    (docs/learning.md).
    """
    jobs = (state.jobs[number] for _, number in state.releases)
    return sorted((job.latest_end if job.limit < NEVER else job.expected_end, job.id) for job in jobs)


class EasyReservation:
    """The start that EASY backfill guarantees to the first waiting job.

    Algorithm
    1. Take the nodes on which the job would fit if the nodes were empty. Begin with the resources that are
       free on these nodes now.
    2. Go through the running jobs in the order of their planned ends. After each end, add the job's resources
       to the free resources of its nodes. With predictions, the planned ends of jobs with time limits are
       still those of the limits (`_planned_ends`).
    3. Stop at the first time when three conditions hold: the job fits on `shape.nodes` nodes, enough licences
       are free, and no operator's reservation bars the nodes. This time is `starts_at`.
    4. `spare` is the number of nodes where the job fits at `starts_at` (`_fitting`), minus the number of
       nodes that the job needs. Backfilled jobs that still run at `starts_at` may leave too little free for
       the job on at most `spare` of these nodes (`take`).

    Invariant: after any backfill, the job still fits on at least `shape.nodes` nodes at `starts_at`. Cost:
    O(running jobs + nodes) to build, and O(nodes of the candidate) for each backfill candidate.

    Example: four 8-GPU nodes are full. Two jobs of one node each end at 10:00 and 11:00, and job 7 wants two
    whole nodes. `starts_at` is 11:00 and `spare` is 0. A one-GPU job with a limit of 30 minutes may start on
    a node that frees a GPU at 10:15. With a limit of two hours it may not start, because it would still hold
    that GPU at 11:00.

    Free resources are lists and not numpy arrays, because candidates read single nodes. Reading one element
    of an array takes ten times as long as reading one of a list.
    """

    def __init__(self, state: State, placer: Placer, shape: Shape, job: int) -> None:
        asked = state.jobs[job]
        self._barring = state.reservations.excluding(asked.user, asked.spec.project)
        self._span_s = state.assumed_span(asked)
        columns, part = state.nodes.columns, shape.part
        self.job = job
        self.starts_at = 0.0
        self.spare = 0
        self._state = state
        self._ends = _planned_ends(state) if placer.pipeline.estimating.predicted else state.releases
        self._shape = shape
        self._domains = placer.required_grouping(shape)
        self._fitting: set[int] = set(placer.ranking(part).rows)
        self._possible: list[bool] = placer.possible_nodes(part).tolist()
        self._reservation_ends_at: float | None = None
        """The end of the operator's reservation that the job names (`--reservation`). The job cannot start at
        this time or later. None: there is no such end.
        """
        if asked.spec.reservation:
            self._confine(asked)
        self._cpu: list[int] = columns.cpu_free.tolist()
        self._memory: list[int] = columns.memory_free.tolist()
        self._scratch: list[int] = columns.scratch_free.tolist() if part.scratch_mib else []
        self._wants_gpus = part.wants_gpus
        self._plain = not (part.wants_gpus or part.scratch_mib)
        """True if the job requests only CPU and memory."""
        self._gpus: list[list[int]] = columns.gpu_free.tolist() if self._wants_gpus else []
        self._models: list[list[int]] = columns.gpu_model.tolist() if self._wants_gpus else []
        self._needs = gpu_needs_of(part, columns)
        self._wanted = asked.ask.licences
        self._licences = {name: state.licences.free(name) for name, _ in self._wanted}
        """The free count of each licence that the job needs. The search adds the licences of each job whose
        end it has passed.
        """
        self._affinity = self._expected_affinity(part)
        if self._affinity is not None:
            # `placer.ranking` leaves out nodes on which the job would break an affinity term now. Add the
            # nodes among them that have enough free resources, because the conflicting job may have ended by
            # `starts_at`.
            self._fitting = {row for row, may in enumerate(self._possible) if may and self._holds(row)}
        self._with_affinity: set[int] | None = None
        self._affinity_broken_by: dict[PerNodeRequest, Bools | None] = {}

    def _confine(self, asked: Job) -> None:
        """Leave out all nodes outside the operator's reservation that the job names (`--reservation`)."""
        reservations, nodes = self._state.reservations, self._state.nodes
        own = reservations.named_by(asked.spec, asked.user)
        inside = set() if own is None else set(reservations.rows(nodes, own))
        self._possible = [may and row in inside for row, may in enumerate(self._possible)]
        self._fitting &= inside
        if own is not None and own.spec.every_s is None:
            self._reservation_ends_at = own.ends_at

    def _expected_affinity(self, part: PerNodeRequest) -> JobAffinityIndex | None:
        """Return a copy of the affinity index (labels and terms of jobs by node). Preemption victims that are
        ending are removed from the copy.

        Return None if the request has no affinity terms and no term of another job applies to it.
        """
        jobs, nodes = self._state.jobs, self._state.nodes
        if not part.social or not nodes.job_affinity.affects(part):
            return None
        affinity = nodes.job_affinity.copy()
        for node in {each.node for job in self._state.claims for each in jobs[job].claim}:
            for victim in nodes.by_name[node].leaving:
                affinity.remove(jobs[victim].ask.part, node)
        return affinity

    def _leaves(
        self, affinity: JobAffinityIndex, part: PerNodeRequest, allocations: list[Allocation]
    ) -> None:
        if part.social:
            for allocation in allocations:
                affinity.remove(part, allocation.node)
            self._with_affinity = None

    def _usable(self) -> set[int]:
        """Return the rows of the nodes on which the waiting job fits and its affinity terms are met. The
        running jobs whose ends the search has passed count as ended.
        """
        if self._affinity is None:
            return self._fitting
        if self._with_affinity is None:
            keeps = self._affinity.nodes_allowed(self._shape.part, self._state.nodes.columns)
            self._with_affinity = set(np.flatnonzero(keeps).tolist())
        return self._fitting & self._with_affinity

    def advance(self, now: float) -> bool:
        """Find the reserved start. Go through the ends of running jobs until the waiting job fits. Set
        `starts_at` to this time, or to `now` if this time has passed. Return False if the job never fits, or
        fits only after the end of the reservation that the job names.
        """
        found = self._advance_between(now) if self._barring else self._advance_over_ends(now)
        end = self._reservation_ends_at
        return found and (end is None or self.starts_at < end)

    def _advance_over_ends(self, now: float) -> bool:
        """Find the reserved start if no operator's reservation keeps the job from any node."""
        jobs = self._state.jobs
        returns, release = self._state.released_by, self._release if self._plain else self._release_all
        for end, releases in groupby(self._ends, key=itemgetter(0)):
            for _, job in releases:
                returned = returns(jobs[job])
                release(returned)
                if self._affinity is not None:
                    self._leaves(self._affinity, jobs[job].ask.part, returned)
                if self._wanted:
                    self._give_licences(jobs[job].ask.licences, 1)
            if len(self._fitting) < self._shape.nodes or (self._wanted and not self.lends()):
                continue
            suited = self._usable()
            self.spare = self._count_spare(suited)
            if self.spare >= 0:
                self._fitting = suited
                self._drop_small_domains()
                self.starts_at = max(end, now)
                return True
        return False

    def _advance_between(self, now: float) -> bool:
        """Find the reserved start if operators' reservations keep the job from some nodes. Set `starts_at` to
        the first time at which the job fits. Return False if there is no such time.

        The ends of running jobs and the ends of these reservations are tried as start times.
        """
        turns = sorted({end for each in self._barring for end in each.ends(now)})
        releases = iter(self._ends)
        release = next(releases, None)
        overdue = release is not None and release[0] <= now
        for moment in heapq.merge([now], turns, (end for end, _ in self._ends)):
            while release is not None and release[0] <= moment:
                self._end(self._state.jobs[release[1]])
                release = next(releases, None)
            at = max(moment, now)
            suited = self._usable() - self._barred_at(at)
            self.spare = self._count_spare(suited)
            # Try `now` only if a running job is past its time limit. Without such a job, the resources that
            # are free now have already turned out to be too few. An overdue job is expected to end at once.
            if (at > now or overdue) and self.spare >= 0 and self.lends():
                self._fitting = suited
                self._drop_small_domains()
                self.starts_at = at
                return True
        return False

    def start_at(self, moment: float) -> bool:
        """Set the reserved start `starts_at` to `moment`. Return False if the waiting job does not fit at
        this time.
        """
        state = self._state
        for end, job in self._ends:
            if end > moment:
                break
            self._end(state.jobs[job])
        self._fitting = self._usable() - self._barred_at(moment)
        self.spare, self.starts_at = self._count_spare(self._fitting), moment
        self._drop_small_domains()
        return self.spare >= 0 and self.lends()

    def _end(self, job: Job) -> None:
        """Add the resources and licences of a running job to the free resources, because the search has
        passed the end of this job.
        """
        returned = self._state.released_by(job)
        (self._release if self._plain else self._release_all)(returned)
        self._give_licences(job.ask.licences, 1)
        if self._affinity is not None:
            self._leaves(self._affinity, job.ask.part, returned)

    def _barred_at(self, moment: float) -> set[int]:
        """Return the row numbers of the nodes that operators' reservations bar for the job if it starts at
        `moment`.
        """
        reservations, nodes = self._state.reservations, self._state.nodes
        until = moment + self._span_s
        barring = (each for each in self._barring if each.overlaps(moment, until))
        return {row for each in barring for row in reservations.rows(nodes, each)}

    def lends(self, wanted: LicenceCounts = ()) -> bool:
        """Return whether enough licences stay free for the waiting job at its reserved start if another job
        takes the licences in `wanted`.
        """
        free = self._licences
        if not free:
            return True
        taken = dict(wanted)
        return all(free[name] - taken.get(name, 0) >= count for name, count in self._wanted)

    def take_licences(self, wanted: LicenceCounts) -> None:
        """Record that a backfilled job will still hold these licences at the reserved start of the waiting
        job.
        """
        self._give_licences(wanted, -1)

    def _give_licences(self, wanted: LicenceCounts, sign: int) -> None:
        for name, count in wanted:
            if name in self._licences:
                self._licences[name] += sign * count

    def _count_spare(self, fitting: set[int]) -> int:
        """Return how many nodes of `fitting` the waiting job does not need. The result is negative if
        `fitting` has too few nodes for the job.
        """
        if len(fitting) < self._shape.nodes or self._domains is None:
            return len(fitting) - self._shape.nodes
        return self._domains.spare_rows(fitting, self._shape.nodes)

    def _drop_small_domains(self) -> None:
        if self._domains is not None:
            self._fitting = self._domains.usable_rows(self._fitting, self._shape.nodes)

    def _release(self, allocations: list[Allocation]) -> None:
        """Add the allocations of a running job to the free resources.

        Used if the waiting job needs only CPU and memory. The method calls no other function, for speed: each
        new reservation calls it for every running job.
        """
        by_name, possible, fitting = self._state.nodes.by_name, self._possible, self._fitting
        cpu, memory, part = self._cpu, self._memory, self._shape.part
        cpu_milli, memory_mib = part.cpu_milli, part.memory_mib
        for allocation in allocations:
            row = by_name[allocation.node].row
            if possible[row]:
                cpu[row] = cpu_there = cpu[row] + allocation.cpu_milli
                memory[row] = memory_there = memory[row] + allocation.memory_mib
                if cpu_there >= cpu_milli and memory_there >= memory_mib:
                    fitting.add(row)

    def _release_all(self, allocations: list[Allocation]) -> None:
        for allocation in allocations:
            row = self._state.nodes.by_name[allocation.node].row
            if self._possible[row]:
                self._give(row, allocation, 1)
                if row not in self._fitting and self._holds(row):
                    self._fitting.add(row)

    def _give(self, row: int, allocation: Allocation, sign: int) -> None:
        self._cpu[row] += sign * allocation.cpu_milli
        self._memory[row] += sign * allocation.memory_mib
        if self._scratch:
            self._scratch[row] += sign * allocation.scratch_mib
        if self._wants_gpus:
            gpus, slots = self._gpus[row], self._state.nodes.rows[row].slots
            for hold in allocation.gpus:
                slot = slots.get(hold.uuid)
                if slot is not None and gpus[slot] != ABSENT:
                    gpus[slot] += sign * hold.milli

    def _holds(self, row: int) -> bool:
        part = self._shape.part
        if self._cpu[row] < part.cpu_milli or self._memory[row] < part.memory_mib:
            return False
        if self._scratch and self._scratch[row] < part.scratch_mib:
            return False
        if not self._wants_gpus:
            return True
        return self._needs.met_by(self._gpus[row], self._models[row], row)

    def blocks(self, placer: Placer, part: PerNodeRequest, row: int) -> bool:
        """Return whether a job with the request `part` would leave too little free for the waiting job on the
        node `row`. The job with the request `part` is assumed to run there at the reserved start.
        """
        if row not in self._fitting:
            return False
        wanted = self._shape.part
        if (
            self._cpu[row] - part.cpu_milli < wanted.cpu_milli
            or self._memory[row] - part.memory_mib < wanted.memory_mib
            or (self._scratch and self._scratch[row] - part.scratch_mib < wanted.scratch_mib)
        ):
            return True
        if not self._wants_gpus or not part.wants_gpus:
            return False
        allocation, _ = placer.allocate(part, self._state.nodes.rows[row])
        self._give(row, allocation, -1)
        fits = self._holds(row)
        self._give(row, allocation, 1)
        return not fits

    def blocked_by(self, placer: Placer, part: PerNodeRequest, rows: list[int]) -> set[int]:
        """Return the nodes of `rows` on which a job with the request `part` would leave too little free for
        the waiting job. The job with the request `part` is assumed to run there at the reserved start.
        """
        fitting = self._fitting
        if not self._plain:
            return {row for row in rows if row in fitting and self.blocks(placer, part, row)}
        cpu, memory, wanted = self._cpu, self._memory, self._shape.part
        cpu_milli, memory_mib = part.cpu_milli + wanted.cpu_milli, part.memory_mib + wanted.memory_mib
        return {row for row in rows if row in fitting and (cpu[row] < cpu_milli or memory[row] < memory_mib)}

    def kept_from(self, part: PerNodeRequest, barred: Bools | None) -> Bools | None:
        """Return which nodes (True by row number) a job with the request `part` may not use. Return None if
        the job may use all nodes.

        The job may not use the nodes in `barred`. The job also may not use a node if an affinity term forbids
        the job to run there together with the waiting job.
        """
        wanted = self._shape.part
        if not part.social or not wanted.social:
            return barred
        if part not in self._affinity_broken_by:
            nodes = self._state.nodes
            affinity = nodes.job_affinity if self._affinity is None else self._affinity
            self._affinity_broken_by[part] = affinity.nodes_barred_by(
                part, wanted, sorted(self._fitting), nodes.columns
            )
        broken = self._affinity_broken_by[part]
        if broken is None:
            return barred
        return broken if barred is None else barred | broken

    def take(self, placer: Placer, part: PerNodeRequest, placement: Placement) -> None:
        """Record that a backfilled job will still hold `placement` at the reserved start of the waiting job.

        Call this before the JobPlaced event is applied, because GPUs are chosen from the GPUs that are free
        now.
        """
        for allocation in placement.allocations:
            row = self._state.nodes.by_name[allocation.node].row
            if self.blocks(placer, part, row):
                self._fitting.discard(row)
                self.spare = self.spare - 1 if self._domains is None else self._count_spare(self._fitting)
                self._drop_small_domains()
            self._give(row, allocation, -1)


def earliest_reservation(
    state: State, placer: Placer, ask: ResourceRequest, job: int, now: float
) -> EasyReservation | None:
    """Return the start that EASY backfill guarantees to a job that cannot start now. Return None if the job
    would not fit when all running jobs have ended, or only after the end of the reservation that it names.

    A job with `--min-nodes` first waits for all its nodes (the assembly time), and then accepts fewer nodes.
    It has two possible starts: on all nodes, and on the fewest nodes after the assembly time. The earlier
    start is guaranteed.

    Example: job 7 wants 5 nodes, accepts 2, and waits 6 s for all 5. Four nodes are free, and the fifth
    becomes free in an hour. The guaranteed start is in 6 s on 2 nodes. So a job that wants 3 of the 4 nodes
    for ten minutes may not start.
    """
    shape = placer.shape(ask)
    if shape is None:
        return None
    whole = EasyReservation(state, placer, shape, job)
    found = whole if whole.advance(now) else None
    if ask.least is None or ask.least >= shape.nodes or shape.topology_required:
        return found
    ripe_at = max(now, accepts_fewer_from(state.jobs[job]))
    if found is not None and found.starts_at <= ripe_at:
        return found
    fewest = _earliest_on_fewest(state, placer, replace(shape, nodes=ask.least), job, now, ripe_at)
    return fewest if fewest is not None and (found is None or fewest.starts_at < found.starts_at) else found


def _earliest_on_fewest(
    state: State, placer: Placer, shape: Shape, job: int, now: float, ripe_at: float
) -> EasyReservation | None:
    """Return a backfill reservation at the earliest time at which the job can start on `shape.nodes` nodes,
    the least number that the job accepts. Return None if there is no such time.

    The reservation does not begin before the time `ripe_at`, because until then the job waits for its full
    number of nodes.
    """
    if ripe_at > now:
        easy = EasyReservation(state, placer, shape, job)
        if easy.start_at(ripe_at):
            return easy
    easy = EasyReservation(state, placer, shape, job)
    return easy if easy.advance(ripe_at) else None
