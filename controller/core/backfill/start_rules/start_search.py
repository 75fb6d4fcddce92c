"""Finds nodes on which a waiting job may start. The start must not delay backfill reservations, jobs with
deadlines or jobs of other scheduler profiles.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.core.backfill.profiles.shared_reservations import SharedReservations
from controller.core.backfill.start_rules.deadline_guard import DeadlineGuard
from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.cluster.node_table import Bools
from controller.core.framework.interfaces import DeadlinePolicy
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer
from controller.core.preemption.fairshare_reclaim import ReclaimStrategy
from controller.core.state.barred_nodes import barred_nodes, nodes_at_model_quota, reserved_nodes
from controller.core.state.state import State
from wire.names import Reason


class StartSearch:
    """Finds nodes on which a waiting job may start now, or the reason why the job may not start. Only
    `find_overruling` changes something: it drops backfill reservations.

    A job may not start on a node if one of these rules forbids the start. The rules are checked in this
    order.
    1. An operator's reservation bars the job from the node.
    2. Another waiting job has a deadline and needs the node's resources before this job would end. This rule
       applies only if the caller passes `for_deadlines=True`.
    3. On nodes shared with other scheduler profiles: the free resources are reserved for another job.
    """

    def __init__(self, state: State, placer: Placer, limits: StartLimits, guard: DeadlineGuard) -> None:
        self._state = state
        self._placer = placer
        self._limits = limits
        self._guard = guard
        self.guards_deadlines = placer.pipeline.deadlines is not DeadlinePolicy.NONE
        """True if backfilled jobs must leave free the resources that jobs with a deadline need."""
        self.shared: SharedReservations | None = None
        """The backfill reservations on nodes that this scheduler profile shares with other profiles. None if
        this profile shares neither nodes nor licences with another profile.
        """

    def barred(self, job: Job, now: float, *, for_deadlines: bool) -> Bools | None:
        """Return which nodes (True by row number) the job may not use for a start. Return None if the job may
        start on all nodes.

        The job may not start on nodes that operators have reserved for other users. If `for_deadlines` is
        True, the job also may not start on nodes that another waiting job needs to meet its deadline.
        """
        barred = barred_nodes(self._state, job, now)
        shape = self._placer.shape(job.ask) if for_deadlines and self.guards_deadlines else None
        return barred if shape is None else self._guard.kept_from(job, shape, barred, now)

    def find(self, job: Job, now: float) -> Placement | None:
        """Return the best placement on as many nodes as the job requests. Return None if there is no such
        placement.

        The placement uses no node that an operator's reservation bars, and no resources that backfill has
        reserved for other jobs. The placement may use resources that another job needs to meet its deadline.
        """
        barred = barred_nodes(self._state, job, now)
        if self.shared is None:
            return self._placer.find(job.ask, barred)
        return self.shared.find(job, barred, now)

    def find_fewer(self, job: Job, now: float) -> Placement | None:
        """Return a placement on fewer nodes than the job requests, or None.

        The placement has as many nodes as are free, but no more than quotas and fair-share limits allow.
        Return None if the job has no `--min-nodes`, if its wait for all nodes (the assembly time) is not
        over, or if too few nodes or licences are free.
        """
        if (
            job.ask.least is None
            or now < accepts_fewer_from(job)
            or self._state.licences.insufficient(job.ask.licences)
        ):
            return None
        most = self._limits.nodes_within(job, now)
        if not most:
            return None
        barred = barred_nodes(self._state, job, now)
        if self.shared is not None:
            return self.shared.find(job, barred, now, most)
        return self._placer.find_fewer(job.ask, barred, most)

    def why_kept_out(self, job: Job, now: float) -> Reason:
        """Return the pending reason of a job that fits on free nodes but may not use these nodes."""
        full = nodes_at_model_quota(self._state, job)
        if full is not None and self._placer.find(job.ask, full) is None:
            return Reason.QUOTA
        barred = barred_nodes(self._state, job, now)
        if barred is not None and self._placer.find(job.ask, barred) is None:
            return Reason.RESERVATION
        if (
            self.guards_deadlines
            and self._placer.find(job.ask, self.barred(job, now, for_deadlines=True)) is None
        ):
            return Reason.OTHERS_DEADLINE
        return Reason.PROMISED

    def reserved_for_others(self, job: Job, now: float) -> Bools | None:
        """Return which nodes (True by row number) have a backfill reservation of another job that begins
        before the end of this job. On these nodes, this job may not preempt other jobs, because the start of
        this job would delay the reserved start. Return None if there is no such node.

        A backfill reservation does not count if this job could preempt the other job after the start of the
        other job. Otherwise an urgent job would wait for a gang, although the urgent job may preempt the gang
        as soon as the gang has started.

        This job is assumed to start when the preempted jobs have used up their grace time.
        """
        if self.shared is None:
            return None
        until = now + self._placer.pipeline.guards.grace_s + job.span
        return self.shared.reserved_before(job, until, now, self._overruled_by(job))

    def find_overruling(self, job: Job, barred: Bools | None, now: float) -> Placement | None:
        """Return the best placement of the job that delays no backfill reservation, except reservations of
        jobs that this job could preempt after their start. If there is such a placement, drop the
        reservations of these jobs, so that the next cycle makes new ones. Return None if there is no such
        placement, or if these jobs have no reservations.

        Example: a gang has reserved two idle nodes, and waits for a third one. A job with a higher priority,
        which may preempt the gang, starts on the idle nodes at once.
        """
        if self.shared is None or not self._placer.pipeline.strategies:
            return None
        return self.shared.find_overruling(job, self._overruled_by(job), barred, now)

    def _overruled_by(self, job: Job) -> Callable[[int], bool]:
        """Return a function that takes the id of another waiting job, and returns whether `job` could preempt
        this other job after its start.
        """
        jobs, rules = self._state.jobs, self._state.quotas.rules
        reaches = [
            (strategy, reach)
            for strategy in self._placer.pipeline.strategies
            # A reclaim strategy compares the resources that tenants hold, and a waiting job holds none.
            if not isinstance(strategy, ReclaimStrategy) and (reach := strategy.reach(job)) is not None
        ]
        victim_queues = rules.queue(job.spec.queue).may_preempt

        def overruled(number: int) -> bool:
            other = jobs[number]
            queue = other.spec.queue
            return (
                rules.queue(queue).preemptible
                and other.spec.preemptible
                and (victim_queues is None or queue in victim_queues)
                and any(strategy.standing(other) <= reach for strategy, reach in reaches)
            )

        return overruled

    def blocked_claim(self, job: Job, now: float) -> str:
        """Return why a job may not start on the nodes that its preemption victims have left. Return an empty
        text if the job may start there.

        The job may not start if its tenants have used up the quota of the GPU model of a node, or if a node
        is reserved by an operator before the job would end. Both can happen after the preemption was planned.
        """
        rows, full = self._state.nodes.by_name, nodes_at_model_quota(self._state, job)
        above = [each.node for each in job.claim if full is not None and full[rows[each.node].row]]
        if above:
            return f"the quota of the GPU model of node {above[0]} is used up"
        barred = reserved_nodes(self._state, job, now)
        lost = [each.node for each in job.claim if barred is not None and barred[rows[each.node].row]]
        return f"node {lost[0]} is reserved before the job would end" if lost else ""
