"""Divides the idle GPUs by the cause why no waiting job runs on them.

Algorithm of a sample
1. Idle GPUs of nodes that take no new jobs count for the reason: node down, drained node, maintenance, a
   reservation for other users, or a GPU out of service. GPUs kept for a nominated job wait for its victims.
2. If no job may start, the other idle GPUs count as "no job waits", or as "held or not yet due" if jobs wait
   for a release, a dependency or a time.
3. Group the waiting jobs that fit on the idle GPUs by kind (same request, user, project, queue and priority).
   Within a kind the job with the shortest time limit comes first, because it fits before a reservation most
   easily.
4. Give idle GPUs to the jobs that could start now without a delay of any reservation. Only a limit (quota,
   share, order of the queue) keeps them from it. These GPUs are waste.
5. Give idle GPUs to the other jobs that fit. The cause is the blocker that `corral explain` names.
6. GPUs that are left over are too scattered for the jobs that wait, or no waiting job may use their nodes.

Invariant: the sum over all causes is the number of idle GPUs.
Cost: O(nodes + LANES x JOBS) and the search for blockers of one job for each kind that fits. No filter is
called for a request whose ranking is up to date after the scheduling pass.

Example: 6 GPUs are idle, and a gang is first in the queue with a reservation in 10 h. A job of 4 GPUs and 2 h
waits for its project's quota, and jobs of 1 GPU and 24 h would delay the gang. Then 4 GPUs are idle because
of the quota, which is waste, and 2 because of the reservation, which is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from operator import itemgetter
from typing import ClassVar

import numpy as np

from controller.core.backfill.cycle import Cycle
from controller.core.cluster.gpu_requirements import gpu_needs_of
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
from controller.core.placement.placer import Placer
from controller.core.quota.usage_counters import QUEUED
from controller.core.state.state import State
from wire.names import WHOLE_GPU, Reason

LANES = 512
"""The most lanes (groups of waiting jobs with the same request) that are examined, in the order of their
first jobs."""
JOBS = 256
"""The most jobs of one lane that are examined."""


class IdleCause(StrEnum):
    """Why GPUs are idle. The values are the names in reports and metrics."""

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
    ORDER = "order of the queue"
    LICENCE = "other requirement"
    SCATTERED = "too scattered"
    UNSUITABLE = "unsuitable for the jobs that wait"


WASTE = (IdleCause.QUOTA, IdleCause.ORDER)
"""The causes for which a waiting job would fit and delay no other job."""
CLOSED = (IdleCause.DOWN, IdleCause.DRAINED, IdleCause.OUT_OF_SERVICE, IdleCause.MAINTENANCE)
"""The causes that take GPUs from the capacity that tenants can be entitled to."""


@dataclass(frozen=True, slots=True)
class _FirstGpu:
    """A picker that reads no value of GPUs, because the value is computed at its first use."""

    name: ClassVar[str] = "first"

    def pick(self, _part: PerNodeRequest, _nodes: NodeTable, _row: int, slots: Sequence[int]) -> int:
        return slots[0]


class IdleSampler:
    """Samples the idle GPUs by cause, by the algorithm in the docstring of this module.

    Invariant: later decisions of the engine do not depend on a sample. Therefore nodes are found by other
    placers than those of the scheduling passes, without scores, and the EASY reservations are left as known
    as they were.
    """

    def __init__(self) -> None:
        self._placers: dict[str, tuple[Cycle, Placer]] = {}
        """The placer without scores for the Cycle of each profile."""

    def sample(self, engine: Engine, now: float) -> dict[IdleCause, float]:
        """Return the number of idle GPUs by cause."""
        idle: defaultdict[IdleCause, float] = defaultdict(float)
        free = _open_gpus(engine.state, idle)
        with ExitStack() as stack:
            for cycle in engine.profile_cycles.cycles.values():
                stack.enter_context(cycle.keeping_easy_reservation())
            if free:
                self._divide(engine, now, free, idle)
        return {cause: gpus for cause, gpus in idle.items() if gpus > 0}

    def _divide(
        self, engine: Engine, now: float, free: dict[int, float], idle: defaultdict[IdleCause, float]
    ) -> None:
        """Add the GPUs in `free`, by row of the node table, to `idle`: steps 2 to 6 of the module."""
        state = engine.state
        kinds, usable = _kinds_that_fit(engine, free)
        for kind in kinds:  # Step 4 of the docstring.
            while kind.jobs and (cause := self._waste(engine, kind.jobs[-1], now)) and kind.take(free):
                kind.jobs.pop()
                idle[cause] += kind.gpus
        for kind in kinds:  # Step 5 of the docstring.
            if kind.jobs and kind.nodes_for(free):
                cause = self._blocker(engine, kind.jobs[-1], now)
                while kind.jobs and kind.take(free):
                    kind.jobs.pop()
                    idle[cause] += kind.gpus
        for row, gpus in free.items():  # Steps 2 and 6 of the docstring.
            left = IdleCause.SCATTERED if usable[row] else IdleCause.UNSUITABLE
            idle[left if len(state.queue) else _without_jobs(state)] += gpus

    def _placer(self, cycle: Cycle) -> Placer:
        known = self._placers.get(cycle.profile)
        if known is None or known[0] is not cycle:
            plain = replace(cycle.placer.pipeline, scorers=(), picker=_FirstGpu())
            known = self._placers[cycle.profile] = cycle, Placer(cycle.state.nodes, plain)
        return known[1]

    def _waste(self, engine: Engine, job: Job, now: float) -> IdleCause | None:
        """Return the cause if the job fits now and would delay no other job; otherwise None."""
        state, cycle = engine.state, engine.profile_cycles.of(job)
        placer = self._placer(cycle)
        if placer.find(job.ask, state.barred_nodes(job, now)) is None:
            return None
        if not starts_next_pass(cycle, job, now, placer) or deadline_blocker(state, placer, job, now):
            return None
        return IdleCause.QUOTA if _limited(cycle, job, now) else IdleCause.ORDER

    def _blocker(self, engine: Engine, job: Job, now: float) -> IdleCause:
        """Return the cause that keeps a job from starting that fits on the idle GPUs. The causes are checked
        in the order in which `corral explain` names them.
        """
        state, cycle = engine.state, engine.profile_cycles.of(job)
        placer, barred = self._placer(cycle), state.barred_nodes(job, now)
        if _limited(cycle, job, now):
            return IdleCause.QUOTA
        if barred is not None and placer.find(job.ask, barred) is None:
            return IdleCause.BEFORE_RESERVATION
        if licence_blocker(state, job):
            return IdleCause.LICENCE
        return IdleCause.DEADLINE if deadline_blocker(state, placer, job, now) else IdleCause.BACKFILL


def _limited(cycle: Cycle, job: Job, now: float) -> bool:
    """Return whether a quota, a share limit or a reservation of quota keeps the job from starting."""
    state = cycle.state
    return state.limited and (
        limit_blocker(state, cycle.placer, job, now) is not None or cycle.quota_delay(job, now) is not None
    )


def _open_gpus(state: State, idle: defaultdict[IdleCause, float]) -> dict[int, float]:
    """Return the idle GPUs of each row of the node table that takes new jobs. Count all other idle GPUs in
    `idle`, by cause.
    """
    columns, free = state.nodes.columns, {}
    closed = _reserved_rows(state)
    usable = columns.gpu_free.clip(min=0).sum(axis=1)
    healthy = (columns.gpu_free != ABSENT).sum(axis=1)
    for node in state.nodes.rows:
        row, whole = node.row, float(usable[node.row]) / WHOLE_GPU
        if not columns.gpu_count[row]:
            continue
        if node.claims or healthy[row] < columns.gpu_count[row]:
            held = sum(hold.milli for each in node.held.values() for hold in each.gpus) / WHOLE_GPU
            if node.claims:
                kept = max(0.0, float(healthy[row]) - held - whole)
                idle[IdleCause.VICTIMS] += kept
                held += kept
            idle[IdleCause.OUT_OF_SERVICE] += max(0.0, float(columns.gpu_count[row]) - held - whole)
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
    """Return the rows of the nodes with an active reservation, and whether it admits any user."""
    found: dict[int, IdleCause] = {}
    for each in state.reservations:
        if each.began:
            admits = each.spec.users or each.spec.projects
            cause = IdleCause.RESERVED_FOR_USERS if admits else IdleCause.MAINTENANCE
            found.update(dict.fromkeys(state.reservations.rows(state.nodes, each), cause))
    return found


def _without_jobs(state: State) -> IdleCause:
    """Return the cause of idle GPUs while no job may start."""
    queued = sum(each.used[QUEUED] for key, each in state.accounts.by_key.items() if key[0] == "user")
    return IdleCause.NOT_DUE if queued > len(state.claims) else IdleCause.NO_JOB


@dataclass(slots=True)
class _Kind:
    """Waiting jobs of one kind. The job with the shortest time limit is the last."""

    jobs: list[Job]
    rows: Bools
    """True for each node on which the request of one node fits now."""
    nodes: int
    per_node: float

    @property
    def gpus(self) -> float:
        return self.nodes * self.per_node

    def nodes_for(self, free: dict[int, float]) -> list[int]:
        """Return the rows of the fullest nodes that can hold one job; empty if there are too few."""
        fit = [row for row, gpus in free.items() if gpus >= self.per_node and self.rows[row]]
        return sorted(fit, key=free.__getitem__)[: self.nodes] if len(fit) >= self.nodes else []

    def take(self, free: dict[int, float]) -> bool:
        """Remove the GPUs of one job from the idle ones. Return False if the job does not fit."""
        rows = self.nodes_for(free)
        for row in rows:
            free[row] -= self.per_node
        return bool(rows)


def _kinds_that_fit(engine: Engine, free: dict[int, float]) -> tuple[list[_Kind], Bools]:
    """Return the kinds of waiting jobs that fit on the idle GPUs. Also return True for each node that a
    waiting job could use if the node were idle.
    """
    state, most = engine.state, max(free.values())
    columns, kinds = state.nodes.columns, []
    usable = np.zeros_like(columns.open)
    heads = [(head, lane) for lane in state.queue if (head := lane.head()) is not None]
    for head, lane in sorted(heads, key=itemgetter(0))[:LANES]:
        placer = engine.profile_cycles.placer_of(state.jobs[head[1]])
        shape = placer.shape(lane.ask)
        if shape is None or not shape.part.wants_gpus:
            continue
        usable |= placer.possible(shape.part)
        if lane.fit.blocked_at == state.nodes.room_version and lane.fit.why is Reason.RESOURCES:
            # The last scheduling pass has found that the request does not fit on the free resources.
            continue
        per_node = gpu_needs_of(shape.part, columns).max_milli / WHOLE_GPU
        ranking = placer.ranking(shape.part)
        if per_node > most or ranking.count < shape.nodes:
            continue
        found: defaultdict[tuple[object, ...], list[Job]] = defaultdict(list)
        for job in (state.jobs[number] for _, number in islice(lane, JOBS)):
            found[job.user, job.spec.project, job.spec.queue, job.priority].append(job)
        kinds += [
            _Kind(sorted(jobs, key=lambda job: -job.limit), ranking.fits, shape.nodes, per_node)
            for jobs in found.values()
        ]
    return [kind for kind in kinds if kind.nodes_for(free)], usable
