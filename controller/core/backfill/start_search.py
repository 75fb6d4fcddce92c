"""Finds where a waiting job may start now, beside reservations, deadlines and other profiles."""

from __future__ import annotations

from controller.core.backfill.deadline_guard import DeadlineGuard
from controller.core.backfill.shared_reservations import SharedReservations
from controller.core.backfill.start_limits import StartLimits
from controller.core.cluster.node_table import Bools
from controller.core.framework.interfaces import DeadlinePolicy
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer
from controller.core.state.state import State
from wire.names import Reason


class StartSearch:
    """Answers where a waiting job may start now, and why it may not. Changes nothing.

    A node is out of bounds for a job, in this order,
    1. while a reservation of an operator bars the job from it,
    2. with `for_deadlines`: when a job with a deadline needs its room before this job ends,
    3. if nodes are shared with other profiles: when its free room is reserved for a job of one of them.
    """

    def __init__(self, state: State, placer: Placer, limits: StartLimits, guard: DeadlineGuard) -> None:
        self._state = state
        self._placer = placer
        self._limits = limits
        self._guard = guard
        self.guards_deadlines = placer.pipeline.deadlines is not DeadlinePolicy.NONE
        """Whether backfilled jobs keep out of the room that jobs with a deadline need."""
        self.shared: SharedReservations | None = None
        """Reservations on nodes that other profiles use as well; None if no node is shared."""

    def barred(self, job: Job, now: float, *, for_deadlines: bool) -> Bools | None:
        """Nodes on which the job may not start because of rule 1, and of rule 2 on request; None: no node."""
        barred = self._state.barred_nodes(job, now)
        shape = self._placer.shape(job.ask) if for_deadlines and self.guards_deadlines else None
        return barred if shape is None else self._guard.kept_from(job, shape, barred, now)

    def find(self, job: Job, barred: Bools | None, now: float) -> Placement | None:
        """The best placement for all nodes of the job, on nodes that neither `barred` nor rule 3 excludes."""
        if self.shared is None:
            return self._placer.find(job.ask, barred)
        return self.shared.find(job, barred, now)

    def find_fewer(self, job: Job, now: float) -> Placement | None:
        """A placement on fewer nodes for a gang whose assembly time is over.

        It has as many nodes as there are, and as quotas and shares allow. None if the job is no such gang,
        has to wait for all its nodes still, or finds too few.
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
        """Which rule keeps a job from nodes that have room for it."""
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
        """Nodes on which preemption must not make room for the job, because they are reserved for others."""
        if self.shared is None:
            return None
        return self.shared.reserved_before(job, now + self._placer.pipeline.guards.grace_s + job.span, now)

    def blocked_claim(self, job: Job, now: float) -> str:
        """Why a job must not start on the nodes that its victims have left; empty if it may.

        An operator's reservation can come near while victims end.
        """
        barred = self._state.barred_nodes(job, now)
        rows = self._state.nodes.by_name
        lost = [each.node for each in job.claim if barred is not None and barred[rows[each.node].row]]
        return f"node {lost[0]} is reserved too soon" if lost else ""
