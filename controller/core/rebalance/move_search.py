"""Finds other nodes for running jobs on a copy of the nodes, with the code that places waiting jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from controller.core.cluster.node_table import Bools
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.placement.trial_placements import TrialPlacements
from controller.core.preemption.guards import (
    guards_in_queue,
    is_preemptible,
    likely_ends,
    may_move,
    preemptible_from,
)
from controller.core.preemption.preemptor import grace_of
from controller.core.preemption.victim_search import VictimSearch
from controller.core.rebalance.proposals import PlannedMove, RebalanceRules
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State
from wire.names import WHOLE_GPU


class MoveSearch:
    """Finds moves of running jobs at the time `now`. Each move is tried on a copy of the nodes.

    1. `movable` lists the jobs of a node that may be moved.
    2. `move` finds a placement for such a job on the copy, and reserves this placement on the copy. On the
       copy, the job also keeps its old allocations. So a set of moves fits while all moved jobs still hold
       their old nodes.
    3. `reset` removes all these reservations before the next set of moves is tried.
    4. To free resources for a waiting job, a `VictimSearch` chooses the running jobs to move, as in
       preemption. If one of these jobs fits on no other nodes, `leave_out` excludes it, and the next search
       finds another set of jobs.

    Cost: one placement for each move. At most MOST_TRIES sets are tried for one waiting job, and at most
    MOST_TRIES_IN_ALL for all waiting jobs.
    """

    MOST_TRIES: ClassVar[int] = 64
    MOST_TRIES_IN_ALL: ClassVar[int] = 256
    name: ClassVar[str] = "rebalancing"

    def __init__(
        self, state: State, placer: Placer, rules: RebalanceRules, now: float, most: int, waiting: list[Job]
    ) -> None:
        self.state = state
        self.placer = placer
        self.rules = rules
        self.now = now
        self.most = most
        """The most jobs that one proposal may move."""
        self.waiting = waiting
        """The waiting jobs for which running jobs may be moved, in queue order."""
        self.stuck: set[int] = set()
        """Running jobs that are not moved for the present waiting job, because they fit on no other nodes."""
        self._always_stuck: set[int] = set()
        """The jobs of `stuck` that fit on no other nodes even if no nodes are reserved for a waiting job."""
        self._tries_left = self.MOST_TRIES_IN_ALL
        self._guards = placer.pipeline.guards
        self._guards_by_queue: dict[str, PreemptionGuards] = {}
        self._trial = TrialPlacements(state.nodes, placer.pipeline)
        self._victims: VictimSearch | None = None

    def standing(self, job: Job) -> float:
        """Return 0 for a running job that may be moved, and NEVER (infinity) for any other job.

        The victim search may choose the jobs whose `standing` is at most the result of `reach`, as in
        preemption.
        """
        return 0.0 if self._is_movable(job) and job.id not in self.stuck else NEVER

    def reach(self, _job: Job) -> float | None:
        """Return 0. The victim search then chooses only jobs that may be moved (`standing` 0)."""
        return 0.0

    def _is_movable(self, job: Job) -> bool:
        nodes = self.state.nodes.by_name
        return (
            may_move(job)
            and (self.rules.without_checkpoint or job.spec.saves or job.checkpoint is not None)
            and all(nodes[member.allocation.node].up for member in job.running)
        )

    def _guards_of(self, job: Job) -> PreemptionGuards:
        queue = job.spec.queue
        known = self._guards_by_queue.get(queue)
        if known is None:
            rule = self.state.quotas.rules.queue(queue)
            known = self._guards_by_queue[queue] = guards_in_queue(self._guards, rule)
        return known

    def movable(self, node: str) -> list[Job]:
        """Return the jobs on a node that may be moved now, the job with the least work (in GPU-hours) since
        its last checkpoint first.
        """
        now = self.now
        jobs = [self.state.jobs[each] for each in self.state.nodes.by_name[node].held]
        found = [
            job
            for job in jobs
            if self._is_movable(job)
            and is_preemptible(job, guards := self._guards_of(job))
            and preemptible_from(job, guards) <= now
            and not likely_ends(job, guards).spares(now)
        ]
        return sorted(found, key=lambda job: (job.unsaved(now), job.id))

    @property
    def victims(self) -> VictimSearch:
        """The search for jobs to move for a waiting job. It chooses the jobs with the least loss of work."""
        if self._victims is None:
            self._victims = VictimSearch(self.state, self.placer, self, self._guards_of)
            self._victims.sync((), self.now)
        return self._victims

    def tries(self) -> Iterator[int]:
        """Yield 0, 1, 2 and so on. Each number allows one more search for a set of jobs to move for the
        present waiting job. Stop after MOST_TRIES for this job or MOST_TRIES_IN_ALL for all waiting jobs.
        """
        for number in range(min(self.MOST_TRIES, self._tries_left)):
            self._tries_left -= 1
            yield number

    def leave_out(self, job: Job) -> None:
        """Do not move the running job `job` for the present waiting job, because it fits on no other nodes.

        If it fits on no other nodes even without the nodes reserved for the waiting job, do not move it for
        later waiting jobs either.
        """
        self.stuck.add(job.id)
        if self.move(job) is None:
            self._always_stuck.add(job.id)
        self.reset()
        self.victims.sync((job.id,), self.now)

    def next_waiting_job(self) -> None:
        """Prepare the search for the next waiting job. Running jobs that fit on no other nodes only because
        of the nodes reserved for the last waiting job may be moved again.
        """
        freed, self.stuck = self.stuck - self._always_stuck, set(self._always_stuck)
        if freed:
            self.victims.sync(freed, self.now)

    def barred(self, job: Job, shape: Shape) -> Bools | None:
        """Return which nodes (True by row number) the waiting job may not use, because of an operator's
        reservation, a timed drain, a quota on a GPU model, or job affinity. Return None if the job may use
        all nodes.
        """
        barred = barred_nodes(self.state, job, self.now, self._guards.grace_s)
        if shape.part.social:
            nodes = self.state.nodes
            unsuited = ~nodes.job_affinity.nodes_allowed(shape.part, nodes.columns)
            barred = unsuited if barred is None else barred | unsuited
        return barred

    def reserve(self, job: int, placement: Placement, leaving: list[int]) -> None:
        """Reserve a placement for the job on the copy of the nodes. The resources may still be held by the
        running jobs in `leaving`.
        """
        self._trial.reserve(self.state.jobs[job], placement.allocations, leaving)

    def move(self, job: Job, barred: Bools | None = None) -> PlannedMove | None:
        """Find another placement for the job, and reserve this placement on the copy of the nodes.

        Nodes for which `barred` is True are not used. Return None if the job fits on none of the other nodes
        that it may use.
        """
        until = self.now + grace_of(job, self._guards)
        not_here = barred_nodes(self.state, job, self.now, until - self.now)
        if barred is not None:
            not_here = barred if not_here is None else barred | not_here
        placement = self._trial.find(job.ask, not_here)
        if placement is None:
            return None
        self.reserve(job.id, placement, [job.id])
        origin = tuple(member.allocation for member in job.running)
        restart = self.rules.restart_s / 3_600 * job.gpu_milli / WHOLE_GPU
        cost = job.unsaved(self.now) + restart
        return PlannedMove(job.id, job.attempt, origin, placement.allocations, placement.quality, cost, until)

    def move_all(self, jobs: Sequence[Job], barred: Bools | None = None) -> list[PlannedMove]:
        """Call `move` for each job, and return the moves that were found. Jobs that fit on no other nodes are
        left out.
        """
        return [move for job in jobs if (move := self.move(job, barred)) is not None]

    def block(self, allocation: Allocation) -> None:
        """Mark the resources of `allocation` as used on the copy of the nodes, so that no move uses these
        resources.
        """
        self._trial.block(allocation)

    def reset(self) -> None:
        """Undo all calls of `reserve`, `move` and `block` on the copy of the nodes."""
        self._trial.reset()
