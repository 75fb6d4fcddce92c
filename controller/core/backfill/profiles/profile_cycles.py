"""Runs the scheduling cycles of all scheduler profiles, one after the other in the order of
scheduler.toml.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace

from controller.core.backfill.conservative.reservation_table import ReservationTable
from controller.core.backfill.cycle import Cycle
from controller.core.backfill.cycle_events import Apply
from controller.core.backfill.profiles.shared_reservations import SharedReservations
from controller.core.estimates.runtime_prediction import extended_estimate
from controller.core.framework.interfaces import PreemptionGuards, SchedulingPolicy
from controller.core.model.events.attempts import PredictionOutlived
from controller.core.model.job import Job
from controller.core.placement.placer import Placer
from controller.core.preemption.guards import guards_in_queue
from controller.core.preemption.scavengers import Scavengers
from controller.core.state.state import State

PASSES_MOST = 4
"""In one call of `run`, each scheduler profile has at most this many scheduling cycles."""


class ProfileCycles:
    """Contains one `Cycle` (a scheduler) for each scheduler profile. The default profile is last. Without
    profiles there is only one `Cycle`.

    A profile is a scheduling policy for some of the jobs on some of the nodes. `run` does this:

    1. Record longer predictions for jobs that have run longer than predicted.
    2. If nodes have changed, find the profiles that use the same nodes or licences. Such profiles keep their
       backfill reservations in one common table.
    3. Run one scheduling cycle of each profile.
    4. Repeat step 3 while a cycle makes other starts possible, but at most PASSES_MOST times. Other starts
       become possible when the cycle drops or moves a reservation in such a shared table, or when
       `Nodes.room_version` grows. For example, this version grows when a job with labels starts, because jobs
       with affinity to this job may then fit.
    """

    def __init__(self, state: State, pipeline: SchedulingPolicy) -> None:
        self._state = state
        self._profiles = {each.name: each for each in pipeline.profiles}
        self._replaces_limits = pipeline.estimating.replaces_limits
        self.guards = pipeline.guards
        self.cycles: dict[str, Cycle] = {
            each.name: self._cycle(replace(each.pipeline, estimating=pipeline.estimating), each.name)
            for each in pipeline.profiles
        } or {"": self._cycle(pipeline, "")}
        self.last = next(reversed(self.cycles.values()))
        """The `Cycle` of the default scheduler profile."""
        self._table = ReservationTable(state)
        if state.scavengers_last:
            self._table.scavengers = Scavengers(state, self.guards_of)
        self._shared = {
            name: SharedReservations(state, cycle.placer, cycle.runtime, self._table)
            for name, cycle in self.cycles.items()
            if len(self.cycles) > 1
        }
        self._layout = -1
        """The value of `Nodes.layout_version` when step 2 last ran."""
        self._outlived_until = -math.inf
        """The time of the last call of `_outlived_predictions`. The planned ends up to this time are already
        examined.
        """

    def _cycle(self, pipeline: SchedulingPolicy, name: str) -> Cycle:
        return Cycle(self._state, Placer(self._state.nodes, pipeline), name, self.guards_of)

    def of(self, job: Job) -> Cycle:
        """Return the `Cycle` of the job's scheduler profile, which schedules the job."""
        return self.named(job.profile)

    def named(self, profile: str) -> Cycle:
        """Return the `Cycle` of the scheduler profile with this name.

        If no profile has this name, return the `Cycle` of the default profile.
        """
        return self.cycles.get(profile, self.last)

    def placer_of(self, job: Job) -> Placer:
        """Return the placer of the job's scheduler profile, which chooses nodes and GPUs for the job."""
        return self.of(job).placer

    def guards_of(self, job: Job) -> PreemptionGuards:
        """Return the limits that protect a running job from preemption. They come from the job's own
        scheduler profile and queue, and not from those of the job that would preempt it.
        """
        profile = self._profiles.get(job.profile)
        guards = self.guards if profile is None else profile.policy.guards
        rule = self._state.quotas.rules.queues.get(job.spec.queue)
        return guards if rule is None else guards_in_queue(guards, rule)

    def run(self, now: float, apply: Apply) -> None:
        """Run the cycles of all scheduler profiles. Each event is given to `apply` at once, which applies it
        to the state, so that the next decision is based on it.
        """
        # Record longer predictions (step 1 in the docstring of this class).
        outlived = self._outlived_predictions(now) if self._replaces_limits else []
        for event in outlived:
            apply(event)
        if self._shared:
            # Find the scheduler profiles that use the same nodes or licences (step 2 in the docstring of this
            # class).
            self._share_tables()
            for shared in self._shared.values():
                shared.reservations.forget_gone()
            self._table.begin_pass(now)
        for _ in range(PASSES_MOST):
            edition, room = self._table.edition, self._state.nodes.room_version
            for cycle in self.cycles.values():
                # Run one scheduling cycle for each scheduler profile (step 3 in the docstring of this class).
                cycle.run(now, apply, overran=bool(outlived))
            if (not self._shared or self._table.edition == edition) and (
                self._state.nodes.room_version == room
            ):
                return

    def _outlived_predictions(self, now: float) -> list[PredictionOutlived]:
        """Return one event for each job whose predicted end has passed since the last call. The event has a
        longer prediction, or None: from now on, plans assume the job's time limit.
        """
        found = []
        releases = self._state.releases
        first = bisect_right(releases, (self._outlived_until, math.inf))
        self._outlived_until = now
        for _, number in releases[first : bisect_right(releases, (now, math.inf))]:
            job = self._state.jobs[number]
            if job.planned_s is not None and job.placed_at is not None:
                elapsed = now - job.placed_at
                if job.planned_s <= elapsed:
                    found.append(PredictionOutlived(job.id, now, extended_estimate(elapsed, job.limit)))
        return found

    def _share_tables(self) -> None:
        """Let scheduler profiles that use the same nodes or licences keep their backfill reservations in one
        table. Do this only if nodes have changed.
        """
        columns = self._state.nodes.columns
        if self._layout == self._state.nodes.layout_version:
            return
        self._layout = self._state.nodes.layout_version
        rows = {name: profile.rows(columns) for name, profile in self._profiles.items()}
        for name, cycle in self.cycles.items():
            shares = any((rows[name] & rows[other]).any() for other in rows if other != name)
            licences = bool(self._state.licences.total)  # All scheduler profiles share all licences.
            cycle.share(self._shared[name] if shares or licences else None)

    def resume(self, other: ProfileCycles) -> None:
        """Copy the backfill reservations of all scheduler profiles from `other`, which belongs to another
        copy of the cluster state. Copying the reservations is faster than computing them again.
        """
        if self._shared:
            self._share_tables()
        for name, cycle in self.cycles.items():
            cycle.resume(other.cycles[name])

    def ask_again(self) -> None:
        """Drop the cached results of filters and scorers, and let the next cycle try all waiting jobs. Call
        this when a failed plugin is called again, because the cached results were computed without the
        plugin.
        """
        for cycle in self.cycles.values():
            cycle.placer.clear_rankings()
        # Increase the version, so that the next cycle tries all waiting jobs again.
        self._state.nodes.room_version += 1

    def forget(self, job: int) -> None:
        """Drop the backfill reservation of a waiting job whose request has changed."""
        for cycle in self.cycles.values():
            cycle.reservations.forget(job)

    def victim_changed(self, job: int, preemptible_at: float) -> None:
        """Update cached data about victims after a change of a running job: more waiting jobs may now be able
        to preempt this job, or its preemption may now lose more or less work.

        `preemptible_at` is the time from which waiting jobs that could not preempt the job before may preempt
        it; NEVER if there are no such jobs.
        """
        for cycle in self.cycles.values():
            if cycle.placer.pipeline.strategies:
                cycle.preemption.victim_changed(job, preemptible_at)
        self._table.note_preemptible(job)

    @property
    def limits_change_at(self) -> float:
        """The next time at which a waiting job may become able to start because a limit no longer stops it: a
        limit on its start, such as a quota, or a limit on preemption.
        """
        cycles = self.cycles.values()
        return min(min(cycle.preemption.retry_at, cycle.limits.again_at) for cycle in cycles)

    @property
    def again_at(self) -> float:
        """The next time at which a waiting job may become able to start although no event happens."""
        at = min(cycle.again_at for cycle in self.cycles.values())
        return min(at, self._table.next_at) if self._shared else at
