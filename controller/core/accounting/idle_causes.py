"""Finds why GPUs are idle. The cause of an idle GPU is the reason why no waiting job runs on it.

A sample is the number of idle GPUs at one moment, by cause. Algorithm of a sample
1. For an idle GPU that takes no new jobs, the cause is the obstacle to new jobs. It is a node that is down or
   drained, maintenance, a reservation for some users, or a GPU out of service. The cause of a GPU kept for a
   nominated job is "victims are ending".
2. If no job may start, all other idle GPUs have one cause. The cause is "held or not yet due" if jobs wait
   for a release, a dependency or a time. Otherwise the cause is "no job waits".
3. Put the waiting jobs that fit on the idle GPUs into groups (same request, user, project, queue and
   priority). Within a group, the job with the shortest time limit comes first, because a short job fits
   before a backfill reservation most easily.
4. Count idle GPUs for the jobs that could start now without delaying any backfill reservation. Only a quota,
   a fair-share limit or the order of the queue keeps these jobs from starting. The report calls these GPUs
   waste.
5. Count idle GPUs for the other jobs that fit. The cause is the blocker that `corral explain` names. If this
   is a quota or a share limit, the report calls these GPUs waste too.
6. The cause of the remaining GPUs is "too scattered" if a waiting job may use their node, otherwise
   "unsuitable for the jobs that wait".

Invariant: the sum over all causes is the number of idle GPUs. Cost: O(nodes + groups), O(JOBS) for each lane
that has changed since the last sample, and one search for the blocker of a job for each group that fits. A
lane is a list of waiting jobs with the same request. The groups of a lane stay the same while the version of
the lane (`Lane`) stays the same. No filter is called for a request whose ranking is up to date after the
scheduling cycle, or for which too few GPUs are idle.

Example: 6 GPUs are idle, and a gang is first in the queue with a backfill reservation in 10 h. A job of 4
GPUs and 2 h waits for its project's quota, and jobs of 1 GPU and 24 h would delay the gang. Then 4 GPUs are
idle because of the quota, and count as waste. The other 2 GPUs are idle because of the reservation, and do
not count as waste.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from operator import attrgetter, itemgetter
from typing import ClassVar

import numpy as np

from controller.core.backfill.cycle import Cycle
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import ABSENT, Bools, NodeTable
from controller.core.engine import Engine
from controller.core.explain.blockers import (
    deadline_blocker,
    licence_blocker,
    limit_blocker,
    starts_next_pass,
)
from controller.core.model.job import Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer, Shape
from controller.core.queue.queue import Lane
from controller.core.quota.usage_counters import QUEUED
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State
from wire.names import WHOLE_GPU, Reason

LANES = 512
"""The most lanes (lists of waiting jobs with the same request) that are examined, in the order of their first
jobs.
"""
JOBS = 256
"""The most jobs of one lane (list of waiting jobs with the same request) that are examined."""


class IdleCause(StrEnum):
    """The cause of an idle GPU. The values are the names in reports and metrics."""

    NO_JOB = "no job waits"
    NOT_DUE = "held or not yet due"
    DOWN = "node down"
    DRAINED = "drained node"
    OUT_OF_SERVICE = "GPU out of service"
    MAINTENANCE = "maintenance"
    RESERVED_FOR_USERS = "reserved for other users"
    BEFORE_RESERVATION = "maintenance ahead"
    BACKFILL = "backfill reservation"
    DEADLINE = "deadline of another job"
    VICTIMS = "victims are ending"
    QUOTA = "quota or share limit"
    KEPT_FREE = "kept free for a queue"
    ORDER = "order of the queue"
    LICENCE = "other requirement"
    SCATTERED = "too scattered"
    UNSUITABLE = "unsuitable for the jobs that wait"


WASTE = (IdleCause.QUOTA, IdleCause.ORDER)
"""The causes that reports call waste: a waiting job fits, and only a limit or the order of the queue keeps
the job from starting.
"""
CLOSED = (IdleCause.DOWN, IdleCause.DRAINED, IdleCause.OUT_OF_SERVICE, IdleCause.MAINTENANCE)
"""The causes of idle GPUs that take no new jobs. These GPUs do not count in the capacity to which tenants are
entitled.
"""


@dataclass(frozen=True, slots=True)
class _FirstGpu:
    """A picker (it chooses GPUs on a node) that always takes the first suitable GPU. Other pickers cache
    values to compare GPUs, and a sample must not change cached values.
    """

    name: ClassVar[str] = "first"

    def pick(self, _part: PerNodeRequest, _nodes: NodeTable, _row: int, slots: Sequence[int]) -> int:
        return slots[0]


class IdleSampler:
    """Counts the idle GPUs by cause. The algorithm is in the docstring of this module.

    Invariant: a sample does not change later decisions of the engine. Therefore the sampler finds nodes with
    its own placers, which use no scores. After the sample it restores the EASY reservation of each scheduler
    profile.
    """

    def __init__(self) -> None:
        self._placers: dict[str, tuple[Cycle, Placer]] = {}
        """For each scheduler profile, by name: a placer without scores, and the Cycle for which it was made.
        """
        self._equal_jobs: dict[Lane, tuple[int, list[list[Job]]]] = {}
        """The result of `_jobs_by_group` for each lane of the last sample, with the version of the lane at
        that time."""

    def sample(self, engine: Engine, now: float) -> dict[IdleCause, float]:
        """Return the number of idle GPUs by cause."""
        idle: defaultdict[IdleCause, float] = defaultdict(float)
        free = _open_gpus(engine.state, idle)
        with ExitStack() as stack:
            for cycle in engine.profile_cycles.cycles.values():
                stack.enter_context(cycle.easy.keeping())
            if free:
                self._divide(engine, now, free, idle)
        return {cause: gpus for cause, gpus in idle.items() if gpus > 0}

    def _divide(
        self, engine: Engine, now: float, free: dict[int, float], idle: defaultdict[IdleCause, float]
    ) -> None:
        """Divide the GPUs in `free` between the causes, and add the numbers to `idle`. `free` contains the
        idle GPUs by row of the node table.
        """
        state = engine.state
        groups, usable = self._groups_that_fit(engine, free)
        # Count the GPUs for jobs that could start now without delaying other jobs (step 4 in the docstring of
        # this module).
        for group in groups:
            while group.left and (cause := self._waste(engine, group.next_job, now)) and group.take(free):
                idle[cause] += group.gpus
        # Count the GPUs for the other jobs that fit (step 5). The cause is what keeps the next job of the
        # group from starting, such as a backfill reservation.
        for group in groups:
            if group.left and group.nodes_for(free):
                cause = self._blocker(engine, group.next_job, now)
                while group.left and group.take(free):
                    idle[cause] += group.gpus
        # Count the GPUs that no waiting job can use now (steps 2 and 6).
        if not len(state.queue):
            idle[_without_jobs(state)] += sum(free.values())
            return
        for row, gpus in free.items():
            idle[IdleCause.SCATTERED if usable[row] else IdleCause.UNSUITABLE] += gpus

    def _groups_that_fit(self, engine: Engine, free: dict[int, float]) -> tuple[list[_EqualJobs], Bools]:
        """Return (groups, usable). `groups` contains the groups of waiting jobs that may fit on the idle
        GPUs. `usable` is an array by row of the node table. It is True for each node that a waiting job could
        use if all resources of the node were free.
        """
        state, before, by_idle = engine.state, self._equal_jobs, sorted(free.values(), reverse=True)
        columns, groups, known = state.nodes.columns, [], dict[Lane, tuple[int, list[list[Job]]]]()
        usable = np.zeros_like(columns.open)
        heads = [(head, lane) for lane in state.queue if (head := lane.head()) is not None]
        for head, lane in sorted(heads, key=itemgetter(0))[:LANES]:
            placer = engine.profile_cycles.placer_of(state.jobs[head[1]])
            shape = placer.shape(lane.ask)
            if shape is None or not shape.part.wants_gpus:
                continue
            usable |= placer.possible(shape.part)
            if lane.fit.blocked_at == state.nodes.room_version and lane.fit.why is Reason.RESOURCES:
                # In the last scheduling cycle, the request did not fit on the free resources.
                continue
            per_node = gpu_needs_of(shape.part, columns).max_milli / WHOLE_GPU
            if shape.nodes > len(by_idle) or by_idle[shape.nodes - 1] < per_node:
                # The idle GPUs are too few even if all their nodes suit the request.
                continue
            found = before.get(lane)
            if found is None or found[0] != lane.version:
                found = lane.version, _jobs_by_group(lane, state.jobs)
            known[lane] = found
            groups += [_EqualJobs(jobs, len(jobs), placer, shape, per_node) for jobs in found[1]]
        self._equal_jobs = known
        return groups, usable

    def _placer(self, cycle: Cycle) -> Placer:
        known = self._placers.get(cycle.profile)
        if known is None or known[0] is not cycle:
            plain = replace(cycle.placer.pipeline, scorers=(), picker=_FirstGpu())
            known = self._placers[cycle.profile] = cycle, Placer(cycle.state.nodes, plain)
        return known[1]

    def _waste(self, engine: Engine, job: Job, now: float) -> IdleCause | None:
        """Return the cause of the limit that alone keeps the job from starting now on the idle GPUs, or ORDER
        if only the order of the queue does. Return None if the start would delay another job or needs other
        nodes.
        """
        state, cycle = engine.state, engine.profile_cycles.of(job)
        placer = self._placer(cycle)
        # Check first whether the job comes next, because this check takes less time than a search for nodes.
        if not starts_next_pass(cycle, job, now, placer):
            return None
        if placer.find(job.ask, barred_nodes(state, job, now)) is None:
            return None
        if deadline_blocker(state, placer, job, now):
            return None
        return _limit_on(cycle, job, now) or IdleCause.ORDER

    def _blocker(self, engine: Engine, job: Job, now: float) -> IdleCause:
        """Return the cause that keeps a job from starting on idle GPUs on which the job fits. The causes are
        checked in the order in which `corral explain` names them.
        """
        state, cycle = engine.state, engine.profile_cycles.of(job)
        placer, barred = self._placer(cycle), barred_nodes(state, job, now)
        limit = _limit_on(cycle, job, now)
        if limit is not None:
            return limit
        if barred is not None and placer.find(job.ask, barred) is None:
            return IdleCause.BEFORE_RESERVATION
        if licence_blocker(state, job):
            return IdleCause.LICENCE
        return IdleCause.DEADLINE if deadline_blocker(state, placer, job, now) else IdleCause.BACKFILL


def _limit_on(cycle: Cycle, job: Job, now: float) -> IdleCause | None:
    """Return the cause for the limit that keeps the job from starting; None if no limit does.

    - BEFORE_RESERVATION: the job waits for the reservation that it names (`--reservation`).
    - KEPT_FREE: free GPUs are kept for another queue.
    - QUOTA: any other limit, or quota that is reserved for a job ahead in the queue.
    """
    state = cycle.state
    if not state.limited:
        return None
    limit = limit_blocker(cycle, job, now)
    if limit is not None and limit[0] is Reason.RESERVATION:
        return IdleCause.BEFORE_RESERVATION
    if limit is not None:
        kept = limit[0] in (Reason.KEPT_FREE, Reason.RESOURCES)
        return IdleCause.KEPT_FREE if kept else IdleCause.QUOTA
    return None if cycle.quota_reservations.delay_of(job, now) is None else IdleCause.QUOTA


def _open_gpus(state: State, idle: defaultdict[IdleCause, float]) -> dict[int, float]:
    """Return the idle GPUs that take new jobs, by row of the node table. Add all other idle GPUs to `idle`,
    by cause.
    """
    columns, free = state.nodes.columns, {}
    closed = _reserved_rows(state)
    # Convert the columns to lists, because Python reads a list faster than an array.
    usable: list[int] = columns.gpu_free.clip(min=0).sum(axis=1).tolist()
    healthy: list[int] = (columns.gpu_free != ABSENT).sum(axis=1).tolist()
    counts: list[int] = columns.gpu_count.tolist()
    for node in state.nodes.rows:
        row, whole = node.row, usable[node.row] / WHOLE_GPU
        if not counts[row]:
            continue
        if node.claims or healthy[row] < counts[row]:
            held = sum(hold.milli for each in node.held.values() for hold in each.gpus) / WHOLE_GPU
            if node.claims:
                kept = max(0.0, healthy[row] - held - whole)
                idle[IdleCause.VICTIMS] += kept
                held += kept
            idle[IdleCause.OUT_OF_SERVICE] += max(0.0, counts[row] - held - whole)
        if not whole:
            continue
        if not node.up:
            idle[IdleCause.DOWN] += whole
        elif node.drained:
            idle[IdleCause.DRAINED] += whole
        elif row in closed:
            idle[closed[row]] += whole
        else:
            free[row] = whole
    return free


def _reserved_rows(state: State) -> dict[int, IdleCause]:
    """Return the nodes with an active reservation of an operator, each with its cause, by row of the node
    table. The cause is RESERVED_FOR_USERS if the reservation admits some users or projects. It is MAINTENANCE
    if the reservation admits no jobs.
    """
    found: dict[int, IdleCause] = {}
    for each in state.reservations:
        if each.began:
            admits = each.spec.users or each.spec.projects
            cause = IdleCause.RESERVED_FOR_USERS if admits else IdleCause.MAINTENANCE
            found.update(dict.fromkeys(state.reservations.rows(state.nodes, each), cause))
    return found


def _without_jobs(state: State) -> IdleCause:
    """Return NOT_DUE if some queued jobs may not start yet; otherwise NO_JOB."""
    queued = sum(each.used[QUEUED] for key, each in state.accounts.by_key.items() if key[0] == "user")
    return IdleCause.NOT_DUE if queued > len(state.claims) else IdleCause.NO_JOB


@dataclass(slots=True)
class _EqualJobs:
    """Waiting jobs with the same request, user, project, queue and priority, the shortest time limit last.
    The first `left` of them have no GPUs in this sample yet.
    """

    jobs: list[Job]
    left: int
    placer: Placer
    shape: Shape
    per_node: float
    """The idle GPUs that a job needs on one node."""

    @property
    def next_job(self) -> Job:
        return self.jobs[self.left - 1]

    @property
    def gpus(self) -> float:
        return self.shape.nodes * self.per_node

    def nodes_for(self, free: dict[int, float]) -> list[int]:
        """Return the nodes for one job, as rows of the node table. Among the nodes with enough idle GPUs,
        prefer those with the fewest idle GPUs. Return an empty list if the job does not fit.
        """
        nodes, per_node = self.shape.nodes, self.per_node
        found = [row for row, gpus in free.items() if gpus >= per_node]
        if len(found) < nodes:
            # Return before `ranking` is called, because `ranking` may call the filters for all changed nodes.
            return []
        fits = self.placer.ranking(self.shape.part).fits
        found = [row for row in found if fits[row]]
        return sorted(found, key=free.__getitem__)[:nodes] if len(found) >= nodes else []

    def take(self, free: dict[int, float]) -> bool:
        """Subtract the GPUs of one job from `free` (idle GPUs by row of the node table), and reduce `left` by
        one. Return False, and change nothing, if the job does not fit.
        """
        rows = self.nodes_for(free)
        if not rows:
            return False
        for row in rows:
            free[row] -= self.per_node
        self.left -= 1
        return True


def _jobs_by_group(lane: Lane, jobs: Mapping[int, Job]) -> list[list[Job]]:
    """Return the first JOBS jobs of a lane (list of jobs with the same request), in groups of the same user,
    project, queue and priority. In each group, the job with the shortest time limit is last.
    """
    found: defaultdict[tuple[object, ...], list[Job]] = defaultdict(list)
    for _, number in islice(lane, JOBS):
        job = jobs[number]
        found[job.user, job.spec.project, job.spec.queue, job.priority].append(job)
    for group in found.values():
        group.sort(key=attrgetter("limit"), reverse=True)
    return [*found.values()]
