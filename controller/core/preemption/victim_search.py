"""Finds running jobs to stop so that a waiting job can start. The preemption strategy decides which jobs may
be stopped.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from controller.core.cluster.free_resources import FreeResources, free_on, row_trial
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import Bools
from controller.core.framework.interfaces import Strategy
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.placement.ranking import filters_for, rows_passing
from controller.core.preemption.candidate_nodes import (
    ROUNDING,
    Candidate,
    by_bound,
    cheapest_choice,
    cheapest_nodes,
)
from controller.core.preemption.fairshare_reclaim import ReclaimContext, ReclaimPolicy, ReclaimStrategy
from controller.core.preemption.guards import GuardsOf, may_move
from controller.core.preemption.victim_index import LossBounds, VictimIndex
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State

MAX_CACHED = 256
MAX_NODES_EXAMINED = 64
"""The number of nodes that are examined for one job is at most this constant plus the number of nodes that
the job needs.
"""
MAX_SETS_TRIED = 256
"""At most this many sets of victims are tried on one node, to find a set with less loss than the
first set.
"""
REQUEUE_S = 3_600.0
"""The assumed wait, in seconds, of a victim that must wait in the queue because it fits on no other nodes.
Its cost grows by its GPUs times this wait. For a job on n nodes the wait counts (n + 1) / 2 times, because
the job waits until n nodes are free.
"""
FAILED_SAVES = 0.01
"""The assumed fraction of jobs that fail to save their state before their preemption. The work of such a job
is lost.
"""
_GPU_HOUR = 3_600_000.0
"""The number of GPU-milli-seconds in one GPU-hour."""

VacatedNodes = Mapping[int, tuple[str, ...]]
"""The nodes that each victim leaves, by victim id. An empty tuple means that the victim is stopped on all its
nodes.
"""


class VictimSearch:
    """Finds victims (running jobs to stop) for a waiting job. Chooses the victims with the least loss among
    the jobs that one strategy may stop.

    Algorithm (`find`)
    1. The strategy names the running jobs that may be stopped for the waiting job. The `standing`
       (protection) of these jobs is at most the `reach` of the waiting job. A reclaim strategy names only
       jobs of tenants that must give resources back. `queues` can limit the victims to the jobs of some
       queues.
    2. Compute a lower bound on the loss for each node (`LossBounds`), and go through the nodes from the
       lowest bound upwards. Find the victims with the least loss on each node (`_candidate`). Keep the best
       `shape.nodes` nodes. Stop when the next bound is not below the loss of any of them, because no later
       node can be better.
    3. If all nodes must be in one topology domain or have one GPU model, do step 2 for each domain or model,
       and choose the one with the least loss. Begin with the lowest sum of bounds, and stop when the next
       sum is not below the loss of the best domain or model (`cheapest_choice`). A topology that needs
       several domains gets those with the least loss.
    4. Drop each victim without which the request still fits on every chosen node. There can be such victims,
       because a victim on several nodes also frees resources on other chosen nodes.
    5. Check the chosen nodes with all filters, as if the victims had left. If a filter rejects a node,
       exclude the node and go back to 2.
    6. Return the placement and the nodes that each victim leaves.

    The loss of a job (`_loss`) is a cost in GPU time, the sum of two parts:
    - the work since its start or last checkpoint (GPUs times time). If the job saves its state before its
      preemption, only the fraction FAILED_SAVES of this work counts. In this case, its GPUs times the time
      for the checkpoint are added.
    - its GPUs times REQUEUE_S, because the job must wait in the queue. A job on n nodes counts (n + 1) / 2
      times this time, because the job must wait until n nodes are free. This part is 0 for a job that fits on
      other nodes now, because such a job is moved and does not wait.

    An elastic job that can give up the node loses only its work on this node. A job that is likely to end
    within `spare_ending_s` seconds is no victim (`likely_ends`).

    Invariant: victims are returned only if the job passes every filter on every chosen node when all victims
    have left. So no job is stopped without a gain for the waiting job. Cost: O(nodes) for the bounds that
    changed, then at most `shape.nodes + MAX_NODES_EXAMINED` nodes with O(victims) checks each.

    Example: a job wants 4 GPUs. On node n1, a job that began an hour ago holds 4 GPUs (loss 4 GPU-hours). On
    node n2, two jobs that began 30 minutes ago hold 2 GPUs each (loss 1 GPU-hour each, 2 together). All three
    jobs fit on other nodes, so no wait in the queue is added. The bound of n2, 2 GPU-hours, is the smaller
    one, so n2 is examined first. The bound of n1 is 4 and not below 2, so n1 is not examined. Both jobs on n2
    are the victims.
    """

    def __init__(self, state: State, placer: Placer, strategy: Strategy, guards_of: GuardsOf) -> None:
        self.strategy = strategy
        self._state = state
        self._placer = placer
        self._reclaim = strategy if isinstance(strategy, ReclaimStrategy) else None
        self._index = VictimIndex(state, strategy, guards_of)
        self._bounds: dict[tuple[PerNodeRequest, float, frozenset[str] | None], LossBounds] = {}

    def sync(self, changed: Collection[int], now: float) -> None:
        """Update the index of the jobs that may be stopped. `changed` contains the jobs whose protection
        against preemption (`standing`) or loss has changed.
        """
        self._index.sync(changed, now)

    def ending(self, now: float) -> list[int]:
        """Return the ids of the spared jobs: running jobs that are not preempted now, because they are likely
        to end soon. The lowest id is first.
        """
        return self._index.ending_jobs(now)

    @property
    def retry_at(self) -> float:
        """The next time at which a running job loses its protection and becomes preemptible. NEVER if there
        is none.
        """
        return self._index.next_preemptible_at

    def stoppable(self, job: Job, running: Iterable[Job], now: float) -> list[Job]:
        """Return the jobs in `running` that the strategy may stop for the waiting job.

        The limits in [preemption], and options of the running jobs such as `--not-preemptible`, are not
        checked.
        """
        reach = self.strategy.reach(job)
        if reach is None:
            return []
        below = [each for each in running if self.strategy.standing(each) <= reach]
        if self._reclaim is None:
            return below
        policy = self._reclaim.reclaim_policy(job, ReclaimContext(self._state, self._placer, now))
        if policy is None:
            return []
        return [each for each in below if policy.must_give_back(self._reclaim.group(each, self._state))]

    def find(
        self,
        job: Job,
        shape: Shape,
        now: float,
        barred: Bools | None,
        queues: frozenset[str] | None = None,
        most: float = NEVER,
    ) -> tuple[Placement, VacatedNodes] | None:
        """Return a placement for the waiting job, and the nodes that each victim leaves. Return None if
        stopping jobs does not free enough resources. `barred` is True for each node that must not be used.

        Only jobs in `queues` are stopped. None means all queues. Jobs whose `standing` is higher than `most`
        are not stopped.
        """
        # Get the jobs that may be stopped (step 1 of the class docstring).
        reach = self.strategy.reach(job)
        if reach is None:
            return None
        reach = min(reach, most)
        policy: ReclaimPolicy | None = None
        if self._reclaim is None:
            bounds = self._cached_bounds(shape.part, reach, queues)
        else:
            policy = self._reclaim.reclaim_policy(job, ReclaimContext(self._state, self._placer, now))
            if policy is None:
                return None
            # Do not cache the bounds of a reclaim strategy, because at each start or end of a job, other
            # tenants may have to give resources back.
            bounds = LossBounds(shape.part, reach, self._index, self._placer, policy, queues)
        for _ in range(MAX_NODES_EXAMINED):
            # Choose the nodes with the least loss (steps 2 and 3 of the class docstring).
            chosen = self._cheapest_nodes(bounds, policy, shape, now, barred)
            if not chosen:
                return None
            # Drop victims that are not needed (step 4 of the class docstring).
            vacated = self._without_needless(shape.part, chosen, self._vacated_nodes(chosen), now)
            if policy is not None and not self._all_selected(policy, vacated):
                return None
            # Check the chosen nodes with all filters (step 5 of the class docstring).
            rejected = [
                each.row for each in chosen if not self._passes_filters(shape.part, each.row, vacated)
            ]
            if not rejected:
                rows = [each.row for each in chosen]
                nodes = self._state.nodes.rows
                free = {
                    row: self._free_without(nodes[row], leaving_node(nodes[row], vacated)) for row in rows
                }
                # Return placement and vacated nodes (step 6 of the class docstring).
                return self._placer.allocate_rows(shape, rows, free), vacated
            for row in rejected:
                bounds.rule_out(row)
        return None

    def _cached_bounds(self, part: PerNodeRequest, reach: float, queues: frozenset[str] | None) -> LossBounds:
        bounds = self._bounds.get((part, reach, queues))
        if bounds is None:
            if len(self._bounds) >= MAX_CACHED:
                self._bounds.clear()
            bounds = LossBounds(part, reach, self._index, self._placer, queues=queues)
            self._bounds[part, reach, queues] = bounds
        return bounds

    def _all_selected(self, policy: ReclaimPolicy, vacated: VacatedNodes) -> bool:
        """Return whether the reclaim policy allows stopping all these victims together. The search has
        already applied the policy to each node alone.
        """
        jobs = sorted((self._state.jobs[job] for job in vacated), key=lambda job: (job.charge, job.id))
        return len([*policy.select(jobs)]) == len(jobs)

    def _cheapest_nodes(
        self, bounds: LossBounds, policy: ReclaimPolicy | None, shape: Shape, now: float, barred: Bools | None
    ) -> list[Candidate]:
        """Return the `shape.nodes` nodes that together have the least loss, with their victims. The nodes are
        sorted by row number. Return an empty result if there are too few nodes.
        """
        grouping = self._placer.required_grouping(shape)
        losses = bounds.losses(now)
        # If no GPU is free, each victim must wait in the queue after its stop. This wait adds to the cost of
        # a victim, so raise the bounds.
        if self._index.any_gpu_free:
            lost = losses.copy()
        else:
            lost, losses = losses, losses + bounds.missing_gpu * REQUEUE_S
        if barred is not None:
            losses = np.where(barred, np.inf, losses)
        left = shape.nodes + MAX_NODES_EXAMINED

        def candidate(row: int) -> Candidate | None:
            nonlocal left
            if not left:
                return None
            left -= 1
            found = self._candidate(row, shape.part, bounds, policy, float(lost[row]), now)
            if found is None:
                bounds.rule_out(row)
            return found

        if grouping is None:
            chosen = cheapest_nodes(islice(by_bound(losses), left), shape.nodes, candidate)
        else:
            choices = grouping.group_choices(np.flatnonzero(losses < np.inf).tolist(), shape.nodes)
            chosen = cheapest_choice(choices, losses.tolist(), candidate)
        return sorted(chosen, key=lambda each: each.row)

    def _candidate(
        self,
        row: int,
        part: PerNodeRequest,
        bounds: LossBounds,
        policy: ReclaimPolicy | None,
        bound: float,
        now: float,
    ) -> Candidate | None:
        """Return the victims with the least loss that make the request fit on one node. Return None if the
        request does not fit even when all preemptible jobs of the node have ended. `bound` is a lower bound
        on the loss.

        1. Add victims until the request fits, the job with the least loss per GPU first.
        2. Drop victims as long as the request still fits, the job with the greatest loss first.
        3. If these victims lose more than the lower bound of the node, try other sets of victims, the set
           with the least loss first.
        """
        nodes, jobs = self._state.nodes, self._state.jobs
        node, needs = nodes.rows[row], gpu_needs_of(part, nodes.columns)
        victims = [job for job in bounds.preemptible(row, now) if self._all_nodes_up(job)]
        if policy is not None:
            victims = [job.id for job in policy.select(jobs[each] for each in victims)]
        waits = {job: self._has_to_wait(jobs[job], node, now) for job in victims}
        milli = {job: jobs[job].gpu_milli for job in victims}
        loss = {job: self._loss(jobs[job], node, now, milli[job], waits=waits[job]) for job in victims}
        if all(waits.values()):
            # Each victim must wait in the queue after its stop. This wait adds to the cost of a victim, so
            # raise the lower bound.
            bound += float(bounds.missing_gpu[row]) * REQUEUE_S
        free = free_on(nodes, row)
        chosen: list[int] = []
        # Add victims until the request fits (step 1 of the docstring).
        for victim in sorted(victims, key=lambda job: loss[job] / (milli[job] or 1)):
            if free.fits(part, needs, row):
                break
            free.add(node, node.held[victim], 1)
            chosen.append(victim)
        if not free.fits(part, needs, row):
            return None
        # Drop victims that are not needed (step 2 of the docstring).
        for victim in sorted(chosen, key=lambda job: (-loss[job], job)):
            free.add(node, node.held[victim], -1)
            if free.fits(part, needs, row):
                chosen.remove(victim)
            else:
                free.add(node, node.held[victim], 1)
        total = sum(loss[job] for job in chosen)
        # Try other sets of victims (step 3 of the docstring).
        if total > bound * ROUNDING:
            for cheaper in _sets_by_loss(loss, total):
                if self._free_without(node, cheaper).fits(part, needs, row):
                    chosen, total = list(cheaper), sum(loss[job] for job in cheaper)
                    break
        return Candidate(total, row, tuple(chosen))

    def _loss(self, job: Job, node: Node, now: float, milli: int, *, waits: bool) -> float:
        """Return the cost, in GPU-milli-seconds, of making the job leave the node. `milli` is the number of
        GPUs, in thousandths, that the job holds on all its nodes. With `waits`, the job cannot start on other
        nodes at once, and the cost of its wait is added.
        """
        if job.spare(node.name):
            return job.unsaved(now, (node.name,)) * _GPU_HOUR
        lost = job.unsaved(now) * _GPU_HOUR
        if job.spec.saves:
            lost = min(lost, lost * FAILED_SAVES + milli * job.spec.checkpoint_s)
        return lost + milli * REQUEUE_S * waits * (1 + len(job.running)) / 2

    def _has_to_wait(self, job: Job, node: Node, now: float) -> bool:
        """Return whether a job that is stopped on the node must then wait in the queue, because it fits on no
        other nodes or may not be moved. False for an elastic job that can give up only this node.
        """
        if job.spare(node.name):
            return False
        shape = self._placer.shape(job.ask)
        if shape is None or not may_move(job):
            return True
        if not self._state.nodes.may_hold(shape.part):
            return True
        ranking = self._placer.ranking(shape.part)
        fits, count = ranking.fits, ranking.count
        barred = barred_nodes(self._state, job, now) if self._state.bars_nodes else None
        if barred is not None:
            fits = fits & ~barred
            count = int(np.count_nonzero(fits))
        return count - int(fits[node.row]) < shape.nodes

    def _all_nodes_up(self, job: int) -> bool:
        """Return whether all nodes of the job are up. No job can be stopped on a node that is down."""
        nodes = self._state.nodes.by_name
        return all(nodes[member.allocation.node].up for member in self._state.jobs[job].running)

    def _free_without(self, node: Node, victims: Iterable[int]) -> FreeResources:
        free = free_on(self._state.nodes, node.row)
        for victim in victims:
            allocation = node.held.get(victim)
            # Add only the resources of jobs that are not being stopped yet. A job that is being stopped frees
            # its resources for another job.
            if allocation is not None and victim not in node.leaving:
                free.add(node, allocation, 1)
        return free

    def _passes_filters(self, part: PerNodeRequest, row: int, vacated: VacatedNodes) -> bool:
        columns, node = self._state.nodes.columns, self._state.nodes.rows[row]
        with row_trial(columns, row, self._free_without(node, leaving_node(node, vacated))):
            rows = np.array([row], dtype=np.intp)
            return bool(rows_passing(part, columns, rows, filters_for(part, self._placer.pipeline))[0])

    def _vacated_nodes(self, chosen: list[Candidate]) -> VacatedNodes:
        """Return the nodes that each victim leaves. An empty tuple means that the victim is stopped on all
        its nodes.

        If an elastic job can continue without the nodes in `chosen`, the job leaves only these nodes. Any
        other victim is stopped on all its nodes.
        """
        jobs, rows = self._state.jobs, self._state.nodes.rows
        vacated: dict[int, tuple[str, ...]] = {}
        for each in chosen:
            for victim in each.victims:
                vacated[victim] = (*vacated.get(victim, ()), rows[each.row].name)
        for victim, nodes in vacated.items():
            job = jobs[victim]
            least = job.spec.gang.min_nodes or 0
            if not all(job.spare(node) for node in nodes) or len(job.staying) - len(nodes) < least:
                vacated[victim] = ()
        return vacated

    def _without_needless(
        self, part: PerNodeRequest, chosen: list[Candidate], vacated: VacatedNodes, now: float
    ) -> VacatedNodes:
        """Return `vacated` without the victims that can stay. A victim can stay if the request fits on all
        nodes in `chosen` even without the end of this victim. The victim with the greatest loss is tried
        first.
        """
        if len(chosen) == 1:
            # The job uses only one node, and `_candidate` has already left out the victims that can stay.
            return vacated

        def loss(victim: int) -> float:
            return self._state.jobs[victim].unsaved(now, vacated[victim])

        for victim in sorted(vacated, key=lambda job: (-loss(job), job)):
            fewer = {job: nodes for job, nodes in vacated.items() if job != victim}
            if all(self._passes_filters(part, each.row, fewer) for each in chosen):
                vacated = fewer
        return vacated


def leaving_node(node: Node, vacated: VacatedNodes) -> list[int]:
    """Return the victims that leave this node. Such a victim is stopped on all its nodes, or it is an elastic
    job that gives up this node.
    """
    return [job for job, nodes in vacated.items() if not nodes or node.name in nodes]


def _sets_by_loss(loss: dict[int, float], below: float) -> Iterator[tuple[int, ...]]:
    """Yield at most MAX_SETS_TRIED sets of jobs that together lose less than `below`, the set with the least
    loss first. `loss` contains the loss of each job.

    The jobs are sorted by loss. A heap contains the next sets. When a set is taken from the heap, two sets
    are added: the set plus the next job, and the set with the next job in place of its last job. So every set
    is yielded at most once, after all sets with less loss.
    """
    jobs = sorted(loss, key=lambda job: (loss[job], job))
    heap: list[tuple[float, tuple[int, ...]]] = [(loss[job], (at,)) for at, job in enumerate(jobs[:1])]
    for _ in range(MAX_SETS_TRIED):
        if not heap or heap[0][0] * ROUNDING >= below:
            return
        total, chosen = heapq.heappop(heap)
        yield tuple(jobs[at] for at in chosen)
        last = chosen[-1]
        if last + 1 < len(jobs):
            following = loss[jobs[last + 1]]
            heapq.heappush(heap, (total + following, (*chosen, last + 1)))
            heapq.heappush(heap, (total - loss[jobs[last]] + following, (*chosen[:-1], last + 1)))
