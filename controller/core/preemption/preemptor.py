"""Chooses running jobs to stop, so that a waiting job can start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from controller.core.cluster.free_resources import free_on
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import ABSENT, Bools, either_mask
from controller.core.framework.interfaces import PreemptionGuards, Strategy
from controller.core.model.events.nominations import PreemptionPlanned, Victim
from controller.core.model.job import NEVER, Job
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.placement.trial_placements import TrialPlacements
from controller.core.preemption.gang_gain import GangGainStrategy, is_worth
from controller.core.preemption.guards import GuardsOf, likely_ends, may_move
from controller.core.preemption.scavengers import StopsForAll
from controller.core.preemption.victim_search import VacatedNodes, VictimSearch, leaving_node
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State
from wire.names import PRIORITIES

NO_GUARDS = PreemptionGuards(
    min_runtime_s=0.0, max_per_job=1 << 30, cooldown_s=0.0, rate=1 << 30, spare_ending_s=0.0
)


@dataclass(frozen=True, slots=True)
class NotAbovePriority:
    """The preemption strategy that may stop every running job with at most the priority of the waiting job.

    A strategy gives each running job a number (`standing`) and each waiting job a number (`reach`). A running
    job may be stopped if its `standing` is at most the `reach` of the waiting job.
    """

    name: ClassVar[str] = "asked"

    def standing(self, job: Job) -> float:
        """Return the requested priority of the running job, or its inherited priority if that is higher."""
        return job.granted_priority

    def reach(self, job: Job) -> float | None:
        """Return the priority in the spec of the waiting job, from 0 to 100."""
        return job.spec.priority


class Preemptor:
    """Plans preemption for a waiting job. A Preemptor stores only caches, which can be computed again from
    the state.

    Algorithm (`plan`)
    1. Update the victim index (the running jobs that may be stopped) of each strategy.
    2. Exclude nodes that are reserved for other jobs. Also exclude nodes that the job cannot use because of
       an operator's reservation, a timed drain, a quota on a GPU model or job affinity. Plan nothing if the
       job will fit after the ends of jobs that are likely to end within `spare_ending_s` seconds.
    3. Search victims with each strategy, in the configured order, until one strategy finds enough victims. If
       the job's queue has the key `may_preempt`, only jobs in the queues of that key can be victims. With
       `gang_gain`, if no other strategy finds enough victims, a job on several nodes may preempt jobs on one
       node. Two conditions must hold: the preemption is worth the lost work (gang_gain.py), and the project
       of the waiting job has not used more than its share.
    4. If more jobs would be stopped within `window_s` seconds than the configured `rate`, plan nothing.
    5. Find other nodes for each victim, the victim with the most GPUs first (`_targets`). A victim that fits
       on other nodes is moved: these nodes are kept for the victim, and the victim starts there when its
       present attempt has ended. Any other victim waits in the queue after its stop. An elastic victim that
       gives up only some nodes continues on its other nodes.

    Invariant: a plan is returned only if its victims are enough for the job to start (see VictimSearch).
    Cost: that of `VictimSearch.find` for each strategy.
    """

    def __init__(
        self,
        state: State,
        placer: Placer,
        strategies: Iterable[Strategy],
        guards: PreemptionGuards,
        guards_of: GuardsOf | None = None,
    ) -> None:
        self.retry_at = NEVER
        """After a call of `plan` that returned None: the time at which the next call may return a plan even
        if nothing else has changed. NEVER if there is no such time.
        """
        self._state = state
        self._placer = placer
        self.guards = guards
        self.guards_of = guards_of or (lambda _: guards)
        """Returns the guards of a running job, from its own scheduler profile and queue."""
        self._changed: set[int] = set()
        self._strategies = [*strategies]
        more: list[Strategy] = [GangGainStrategy()] if guards.gang_gain else []
        self._searches = [
            VictimSearch(state, placer, each, self.guards_of) for each in [*self._strategies, *more]
        ]

    def without_guards(self, names: Collection[str]) -> Preemptor:
        """Return a preemptor that ignores some guards (limits in [preemption] to protect running jobs) in all
        scheduler profiles. `names` are the field names of these guards in PreemptionGuards.
        """
        lifted: dict[str, Any] = {name: getattr(NO_GUARDS, name) for name in names}
        return Preemptor(
            self._state,
            self._placer,
            self._strategies,
            replace(self.guards, **lifted),
            lambda job: replace(self.guards_of(job), **lifted),
        )

    def victim_changed(self, job: int, preemptible_at: float) -> None:
        """Record that a running job has changed: its protection against preemption, or the work that a
        preemption would lose.

        `preemptible_at` is the time from which more waiting jobs than before may preempt the job. It is NEVER
        if the change does not let more waiting jobs preempt the job.
        """
        self._changed.add(job)
        self.retry_at = min(self.retry_at, preemptible_at)

    def plan(
        self, job: Job, now: float, reserved: Bools | None = None, *, scavengers_only: bool = False
    ) -> PreemptionPlanned | None:
        """Return the event that names the victims to stop and the placement for the waiting job. Return None
        if stopping jobs does not free enough resources, if the job will soon fit without preemption, or if
        too many jobs were preempted in the last `window_s` seconds.

        `reserved` is True for each node that is reserved for other jobs and must not be used. With
        `scavengers_only`, stop only scavengers (jobs of the lowest priority), and use only strategies that
        stop scavengers for all other jobs, such as `pressure`.
        """
        if not scavengers_only:
            self.retry_at = NEVER
        shape = self._placer.shape(job.ask)
        if shape is None:
            return None
        self._sync(now)
        # Exclude nodes that the job may not use (step 2 of the class docstring).
        barred = self.barred(job, shape, now, reserved)
        ending = self._ending(job, shape, now, barred)
        if ending is not None:
            self.retry_at = ending[1]
            return None
        # Search victims with each strategy (step 3 of the class docstring).
        queues = self.victim_queues(job)
        for search in self._searches:
            if scavengers_only and not isinstance(search.strategy, StopsForAll):
                continue
            for_gangs = isinstance(search.strategy, GangGainStrategy)
            if for_gangs and (shape.nodes < 2 or self._above_share(job, now)):
                continue
            most = PRIORITIES["SCAVENGER"] if scavengers_only else NEVER
            found = search.find(job, shape, now, barred, queues, most)
            if found is not None and found[1]:
                placement, vacated = found
                victims = (self._state.jobs[each] for each in vacated)
                if for_gangs and not is_worth(shape, victims, self.guards.gang_gain, now):
                    continue
                return self._event(job, placement, vacated, search.strategy.name, now, reserved)
            self.retry_at = min(self.retry_at, search.retry_at)
        return None

    @property
    def active(self) -> bool:
        """True if the configuration lets waiting jobs preempt running jobs."""
        return bool(self._searches)

    def _above_share(self, job: Job, now: float) -> bool:
        return self._state.shares.above_share(self._state.tenant(job)[0], now)

    def _sync(self, now: float) -> None:
        """Update each strategy's index of the jobs that may be stopped."""
        changed, self._changed = self._changed, set()
        for search in self._searches:
            search.sync(changed, now)

    def ends_anyway(self, job: Job, now: float, reserved: Bools | None = None) -> tuple[list[Job], float]:
        """Find out whether the waiting job will soon fit without preemption, because running jobs end. If so,
        return the running jobs that must end first, and the time at which they have probably ended. This time
        is less than `spare_ending_s` seconds away. Otherwise return ([], NEVER).
        """
        shape = self._placer.shape(job.ask)
        if shape is None or not self._searches:
            return [], NEVER
        self._sync(now)
        return self._ending(job, shape, now, self.barred(job, shape, now, reserved)) or ([], NEVER)

    def _ending(
        self, job: Job, shape: Shape, now: float, barred: Bools | None
    ) -> tuple[list[Job], float] | None:
        ids = self._searches[0].ending(now) if self._searches else []
        if not ids:
            return None
        jobs = [self._state.jobs[each] for each in ids]
        if not self._may_fit_after(jobs, shape):
            return None  # Return before the nodes are copied, because this copy is slow.
        ends = sorted((likely_ends(each, self.guards_of(each)).at(now), each.id) for each in jobs)
        nodes = self._state.nodes.copy()
        placer = Placer(nodes, self._placer.pipeline)
        for at, number in ends:
            nodes.free(number, [member.allocation.node for member in self._state.jobs[number].running])
            placement = placer.find(job.ask, barred)
            if placement is not None:
                chosen = {allocation.node for allocation in placement.allocations}
                return [each for each in jobs if not chosen.isdisjoint(each.members)], at
        return None

    def _may_fit_after(self, ending: Iterable[Job], shape: Shape) -> bool:
        """Return False if too few nodes have enough free resources for the request, even after all jobs in
        `ending` have ended. True means that the request may fit then.
        """
        nodes, ranking = self._state.nodes, self._placer.ranking(shape.part)
        needs = gpu_needs_of(shape.part, nodes.columns)
        fitting = ranking.count
        left: dict[str, list[int]] = {}
        for each in ending:
            for member in each.running:
                left.setdefault(member.allocation.node, []).append(each.id)
        for name, jobs in left.items():
            node = nodes.by_name[name]
            if ranking.fits[node.row]:
                continue
            free = free_on(nodes, node.row)
            for number in jobs:
                free.add(node, node.held[number], 1)
            # Count a node with nominations as fitting, because the end of a job may free more resources there
            # than the job itself holds.
            fitting += bool(node.claims) or free.fits(shape.part, needs, node.row)
        return fitting >= shape.nodes

    def barred(self, job: Job, shape: Shape, now: float, reserved: Bools | None) -> Bools | None:
        """Return which nodes (True by row number) the waiting job must not use. These are the nodes in
        `reserved`, and nodes that the job cannot use because of an operator's reservation, a timed drain, a
        quota on a GPU model or job affinity.
        """
        barred = either_mask(reserved, barred_nodes(self._state, job, now, self.guards.grace_s))
        if shape.part.social:
            nodes = self._state.nodes
            barred = either_mask(barred, ~nodes.job_affinity.nodes_allowed(shape.part, nodes.columns))
        return barred

    def stoppable(self, job: Job, running: Iterable[Job], now: float) -> set[int]:
        """Return the ids of the jobs in `running` that at least one strategy may stop for the waiting job.
        The guards of these jobs are not checked.
        """
        queues = self.victim_queues(job)
        jobs = [each for each in running if queues is None or each.spec.queue in queues]
        return {each.id for search in self._searches for each in search.stoppable(job, jobs, now)}

    def victim_queues(self, job: Job) -> frozenset[str] | None:
        """Return the queues whose jobs the waiting job may preempt. None means all queues."""
        return self._state.quotas.rules.queue(job.spec.queue).may_preempt

    def recent(self, now: float) -> list[float]:
        """Return the times of the preemptions in the last `window_s` seconds, the oldest first. At most
        `rate` preemptions are allowed in this time.
        """
        past, window = self._state.preempted_at, self.guards.window_s
        return past[bisect_right(past, now, key=lambda at: at + window) :]

    def _event(
        self,
        job: Job,
        placement: Placement,
        vacated: VacatedNodes,
        strategy: str,
        now: float,
        reserved: Bools | None,
    ) -> PreemptionPlanned | None:
        """Return the event that begins the preemption; None if too many jobs were preempted in the last
        `window_s` seconds.
        """
        jobs = self._state.jobs
        recent = self.recent(now)
        # Check the rate limit (step 4 of the class docstring).
        if len(recent) + len(vacated) > self.guards.rate:
            self.retry_at = recent[0] + self.guards.window_s if recent else NEVER
            return None
        targets = self._targets(job, placement, vacated, now, reserved)
        return PreemptionPlanned(
            job.id,
            now,
            placement.allocations,
            placement.quality,
            tuple(
                Victim(
                    *(victim, jobs[victim].unsaved(now, nodes), jobs[victim].attempt, nodes),
                    *((there.allocations, there.quality) if (there := targets.get(victim)) else ()),
                )
                for victim, nodes in sorted(vacated.items())
            ),
            strategy,
            max(now + self.grace(jobs[victim]) for victim in vacated),
        )

    def _targets(
        self, job: Job, placement: Placement, vacated: VacatedNodes, now: float, reserved: Bools | None
    ) -> dict[int, Placement]:
        """Return the placement to which each victim is moved, by victim id. Left out are victims that fit on
        no other nodes, elastic jobs, and jobs of another scheduler profile than the waiting job.
        """
        state = self._state
        victims = [state.jobs[victim] for victim, nodes in vacated.items() if not nodes]
        movable = [each for each in victims if may_move(each) and each.profile == job.profile]
        if not any(self._placer.fits(each.ask) for each in movable):
            return {}
        trial = TrialPlacements(state.nodes, self._placer.pipeline)
        left = np.zeros(len(state.nodes), dtype=np.bool_)
        for allocation in placement.allocations:
            node = state.nodes.by_name[allocation.node]
            left[node.row] = True
            trial.reserve(job, [allocation], leaving_node(node, vacated))
        found: dict[int, Placement] = {}
        for victim in sorted(movable, key=lambda each: (-each.gpu_milli, each.id)):
            barred = either_mask(reserved, barred_nodes(state, victim, now, self.grace(victim)))
            there = trial.find(victim.ask, left if barred is None else barred | left)
            if there is not None:
                trial.reserve(victim, there.allocations, [victim.id])
                found[victim.id] = there
        return found

    def grace(self, job: Job) -> float:
        """Return the seconds that a victim may take to save its state and end. The guards of its scheduler
        profile and queue can lengthen the time that the job itself requests.
        """
        return grace_of(job, self.guards_of(job))

    def claim_problem(self, job: Job) -> str:
        """Return why a nominated job can no longer use its nominated nodes and GPUs. Return an empty text if
        the job can still use them.
        """
        for allocation in job.claim:
            node = self._state.nodes.by_name[allocation.node]
            if node.drained or (not node.up and not node.reconnect_expected):
                return f"node {node.name} is {node.state.value}"
            columns, row = self._state.nodes.columns, node.row
            for hold in allocation.gpus:
                slot = node.slots.get(hold.uuid)
                if slot is None or columns.gpu_free[row, slot] == ABSENT:
                    return f"a GPU of node {node.name} no longer takes jobs"
        return ""

    def victims_have_left(self) -> bool:
        """Return whether at least one nominated job can start in the next cycle, because its victims have
        left its nodes.
        """
        state = self._state
        return any(
            self.claim_ready(state.jobs[job]) for job in state.nodes.claims_to_check if job in state.claims
        )

    def claim_ready(self, job: Job) -> bool:
        """Return whether a nominated job can start now. Its nominated nodes must be up, and all victims must
        have left these nodes.
        """
        if job.unended or job.wait.gates:
            # A job that is being moved must first end on its old nodes. A replica of a service must first
            # wait for the end of its restart delay.
            return False
        nodes = self._state.nodes.by_name
        return all(
            nodes[each.node].up and job.id not in nodes[each.node].leaving.values() for each in job.claim
        )


def grace_of(job: Job, guards: PreemptionGuards) -> float:
    """Return the seconds that a victim may take to save its state and end: its grace time (at least
    `guards.grace_s`), plus the time for its checkpoint if it saves one.
    """
    return max(job.spec.grace_s, guards.grace_s) + (job.spec.checkpoint_s if job.spec.saves else 0.0)
