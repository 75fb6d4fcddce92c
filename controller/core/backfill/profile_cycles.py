"""Runs the cycles of all profiles on one state, one after the other in the order of scheduler.toml."""

from __future__ import annotations

from dataclasses import replace

from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.backfill.cycle import Apply, Cycle
from controller.core.backfill.shared_reservations import SharedReservations
from controller.core.framework.interfaces import PreemptionGuards, SchedulingPolicy
from controller.core.model.job import Job
from controller.core.placement.placer import Placer
from controller.core.state.state import State

PASSES_MOST = 4
"""The most passes per run."""


class ProfileCycles:
    """One cycle for each profile, the default profile last; a single cycle without profiles.

    1. Record longer predictions for jobs that have run longer than predicted.
    2. If nodes have changed, find the profiles that share nodes; with licences, all profiles count as
       sharing. These profiles keep their reservations in one table.
    3. Run one pass of each profile.
    4. Repeat step 3 while a pass drops or moves a shared reservation, at most PASSES_MOST times.
    """

    def __init__(self, state: State, pipeline: SchedulingPolicy) -> None:
        self._state = state
        self._profiles = {each.name: each for each in pipeline.profiles}
        self._predicts = pipeline.estimating.predicted
        self.guards = pipeline.guards
        self.cycles: dict[str, Cycle] = {
            each.name: self._cycle(replace(each.pipeline, estimating=pipeline.estimating), each.name)
            for each in pipeline.profiles
        } or {"": self._cycle(pipeline, "")}
        self.last = next(reversed(self.cycles.values()))
        """The cycle of the default profile."""
        self._table = ReservationTable(state)
        self._shared = {
            name: SharedReservations(state, cycle.placer, cycle.runtime, self._table)
            for name, cycle in self.cycles.items()
            if len(self.cycles) > 1
        }
        self._layout = -1
        """`Nodes.layout_version` when step 2 last ran."""

    def _cycle(self, pipeline: SchedulingPolicy, name: str) -> Cycle:
        guards_of = self.guards_of if self._profiles else None
        return Cycle(self._state, Placer(self._state.nodes, pipeline), name, guards_of)

    def of(self, job: Job) -> Cycle:
        """The cycle of the job's profile."""
        return self.named(job.profile)

    def named(self, profile: str) -> Cycle:
        """The cycle of the named profile; without such a profile, the default profile's cycle."""
        return self.cycles.get(profile, self.last)

    def placer_of(self, job: Job) -> Placer:
        """The placer of the job's profile."""
        return self.of(job).placer

    def guards_of(self, job: Job) -> PreemptionGuards:
        """The limits on preempting a running job, as its own profile sets them."""
        profile = self._profiles.get(job.profile)
        return self.guards if profile is None else profile.policy.guards

    def run(self, now: float, apply: Apply) -> None:
        """Run the passes that are due now; `apply` records each event before the next is decided."""
        outlived = self.last.outlived_predictions(now) if self._predicts else []  # 1
        for event in outlived:
            apply(event)
        if not self._shared:
            self.last.run(now, apply, overran=bool(outlived))
            return
        self._share_tables()  # 2
        for shared in self._shared.values():
            shared.reservations.forget_gone()
        self._table.begin_pass(now)
        for _ in range(PASSES_MOST):
            edition = self._table.edition
            for cycle in self.cycles.values():
                cycle.run(now, apply, overran=bool(outlived))  # 3
            if self._table.edition == edition:
                return

    def _share_tables(self) -> None:
        """If nodes have changed, give the shared table to each profile that shares nodes or licences."""
        columns = self._state.nodes.columns
        if self._layout == self._state.nodes.layout_version:
            return
        self._layout = self._state.nodes.layout_version
        rows = {name: profile.rows(columns) for name, profile in self._profiles.items()}
        for name, cycle in self.cycles.items():
            shares = any((rows[name] & rows[other]).any() for other in rows if other != name)
            licences = bool(self._state.licences.total)  # because every profile's jobs use the same licences
            cycle.share(self._shared[name] if shares or licences else None)

    def resume(self, other: ProfileCycles) -> None:
        """Copy the reservations of cycles that work on another copy of the state."""
        if self._shared:
            self._share_tables()
        for name, cycle in self.cycles.items():
            cycle.resume(other.cycles[name])

    def ask_again(self) -> None:
        """Drop the cached results of plugins, because a plugin that failed is called again from now on."""
        for cycle in self.cycles.values():
            cycle.placer.clear_rankings()
        self._state.nodes.room_version += 1  # so that jobs that did not fit are tried again

    def forget(self, job: int) -> None:
        """Drop the reservation of a waiting job whose request has changed."""
        for cycle in self.cycles.values():
            cycle.forget(job)

    def stir(self, job: int) -> None:
        """Record that the work that would be lost by preempting a running job has changed."""
        for cycle in self.cycles.values():
            if cycle.placer.pipeline.strategies:
                cycle.preemption.loss_changed(job)

    @property
    def limits_change_at(self) -> float:
        """The next time at which a quota or a limit on preemption may allow a job to start."""
        cycles = self.cycles.values()
        return min(min(cycle.preemption.retry_at, cycle.limits.again_at) for cycle in cycles)

    @property
    def again_at(self) -> float:
        """The next time at which a waiting job may become able to start although no input arrives."""
        at = min(cycle.again_at for cycle in self.cycles.values())
        return min(at, self._table.next_at) if self._shared else at
