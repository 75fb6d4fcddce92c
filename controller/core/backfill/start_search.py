"""Finds nodes on which a waiting job may start. The start must not delay reservations, jobs with deadlines or
jobs of other profiles.
"""

from __future__ import annotations

from controller.core.backfill.deadline_guard import DeadlineGuard
from controller.core.backfill.shared_reservations import SharedReservations
from controller.core.backfill.start_limits import StartLimits
from controller.core.cluster.node_table import Bools
from controller.core.framework.interfaces import DeadlinePolicy
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer
from controller.core.preemption.fairshare_reclaim import ReclaimStrategy
from controller.core.state.state import State
from wire.names import Reason


class StartSearch:
    """Finds nodes on which a waiting job may start now, or the reason why it may not. It does not change the
    state.

    A job may not start on a node if one of these rules forbids the start. The rules are checked in this
    order.
    1. An operator's reservation bars the job from the node.
    2. Another waiting job has a deadline and needs the node's resources before this job would end. Only
       callers that pass `for_deadlines=True` apply this rule.
    3. On nodes shared with other profiles: the free resources are reserved for another job.
    """

    def __init__(self, state: State, placer: Placer, limits: StartLimits, guard: DeadlineGuard) -> None:
        self._state = state
        self._placer = placer
        self._limits = limits
        self._guard = guard
        self.guards_deadlines = placer.pipeline.deadlines is not DeadlinePolicy.NONE
        """True if backfilled jobs must leave free the resources that jobs with a deadline need."""
        self.shared: SharedReservations | None = None
        """The reservations on nodes that this profile shares with other profiles. None if it shares no
        nodes.
        """

    def barred(self, job: Job, now: float, *, for_deadlines: bool) -> Bools | None:
        """Return an array that is True for each node on which the job may not start. Return None if it may
        start on all nodes.

        The job may not start on nodes that operators have reserved for other users. If `for_deadlines` is
        True, it also may not start on nodes that another waiting job needs to meet its deadline.
        """
        barred = self._state.barred_nodes(job, now)
        shape = self._placer.shape(job.ask) if for_deadlines and self.guards_deadlines else None
        return barred if shape is None else self._guard.kept_from(job, shape, barred, now)

    def find(self, job: Job, now: float) -> Placement | None:
        """Return the best placement on as many nodes as the job requests. Return None if there is none.

        The placement uses no node that an operator's reservation bars, and no resources that are reserved for
        other jobs. It may use resources that another job needs to meet its deadline.
        """
        barred = self._state.barred_nodes(job, now)
        if self.shared is None:
            return self._placer.find(job.ask, barred)
        return self.shared.find(job, barred, now)

    def find_fewer(self, job: Job, now: float) -> Placement | None:
        """Return a placement on fewer nodes than the job requests, or None.

        The placement has as many free nodes as quotas and share limits allow. Return None if the job has no
        `--min-nodes`, if it still waits for all its nodes (the assembly time), or if too few nodes are free.
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
        barred = self._state.barred_nodes(job, now)
        if self.shared is not None:
            return self.shared.find(job, barred, now, most)
        return self._placer.find_fewer(job.ask, barred, most)

    def why_kept_out(self, job: Job, now: float) -> Reason:
        """Return the pending reason of a job that fits on free nodes but may not start there."""
        full = self._state.nodes_at_model_quota(job)
        if full is not None and self._placer.find(job.ask, full) is None:
            return Reason.QUOTA
        barred = self._state.barred_nodes(job, now)
        if barred is not None and self._placer.find(job.ask, barred) is None:
            return Reason.RESERVATION
        if (
            self.guards_deadlines
            and self._placer.find(job.ask, self.barred(job, now, for_deadlines=True)) is None
        ):
            return Reason.OTHERS_DEADLINE
        return Reason.PROMISED

    def reserved_for_others(self, job: Job, now: float) -> Bools | None:
        """Return an array that is True for each node with a backfill reservation of another job that begins
        before this job would end. This job may not preempt jobs on these nodes, because it would delay the
        other job. Return None if there is no such node.

        A reservation does not count if this job could preempt the other job after the start of the other job.
        If it counted, an urgent job would wait for a gang that it may stop as soon as the gang has started.

        This job is assumed to start when the preempted jobs have used up their grace time.
        """
        if self.shared is None:
            return None
        pipeline, jobs, rules = self._placer.pipeline, self._state.jobs, self._state.quotas.rules
        reaches = [
            (strategy, reach)
            for strategy in pipeline.strategies
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

        until = now + pipeline.guards.grace_s + job.span
        return self.shared.reserved_before(job, until, now, overruled)

    def blocked_claim(self, job: Job, now: float) -> str:
        """Return why a job may not start on the nodes that its preemption victims have left. Return an empty
        text if the job may start there.

        The job may not start if an operator's reservation of a node begins before the job would end. At the
        time of the preemption plan, the job would still have ended before the reservation.
        """
        rows, full = self._state.nodes.by_name, self._state.nodes_at_model_quota(job)
        above = [each.node for each in job.claim if full is not None and full[rows[each.node].row]]
        if above:
            return f"the quota of the GPU model of node {above[0]} is used up"
        barred = self._state.reserved_nodes(job, now)
        lost = [each.node for each in job.claim if barred is not None and barred[rows[each.node].row]]
        return f"node {lost[0]} is reserved too soon" if lost else ""
