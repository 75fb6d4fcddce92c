"""The scheduling cycle of one scheduler profile: starts jobs in queue order, then backfills."""

from __future__ import annotations

import heapq

from controller.core.backfill.candidates.backfill_pass import backfill_all, backfill_new
from controller.core.backfill.candidates.elastic_growth import grow_elastic_jobs
from controller.core.backfill.candidates.rationing import rationed_users
from controller.core.backfill.candidates.short_starts import start_short_jobs, with_short_limit
from controller.core.backfill.conservative.conservative_pass import ConservativePass
from controller.core.backfill.conservative.queue_reservations import QueueReservations
from controller.core.backfill.cycle_events import Apply
from controller.core.backfill.easy.first_reservation import FirstReservation
from controller.core.backfill.preemptor_starts import plan_preemption, preempt_scavengers, start_preemptors
from controller.core.backfill.profiles.jobs_to_reserve import jobs_to_reserve, reserved_behind
from controller.core.backfill.profiles.shared_reservations import GuaranteedStart, SharedReservations
from controller.core.backfill.slices.slice_pass import SlicePass
from controller.core.backfill.start_rules.deadline_guard import DeadlineGuard
from controller.core.backfill.start_rules.deadline_starts import job_to_try_first, start_urgent_jobs
from controller.core.backfill.start_rules.limited_starts import shut_if_over, start_on_fewer
from controller.core.backfill.start_rules.quota_reservations import QuotaReservations
from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.backfill.start_rules.start_search import StartSearch
from controller.core.backfill.tried_jobs import only_new_jobs_matter, versions
from controller.core.framework.interfaces import DeadlinePolicy, Reserves
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.job import NEVER, Job
from controller.core.model.skipped_numbers import NONE_SKIPPED
from controller.core.model.time_limits import ShortLimit
from controller.core.placement.placer import Placement, Placer
from controller.core.preemption.guards import GuardsOf
from controller.core.preemption.preemptor import Preemptor
from controller.core.preemption.scavengers import Scavengers
from controller.core.queue.order import compares_shares, service_order
from controller.core.queue.queue import Lane, PositionKey, QueueEntry
from controller.core.state.order_view import position_key
from controller.core.state.state import State
from wire.names import Reason


class Cycle:
    """Runs the scheduling cycles of one scheduler profile, and caches results so that the next cycle is
    cheap.

    A profile is a scheduling policy for some of the jobs. A lane is a list of waiting jobs with the same
    resource request (`queue.Lane`).

    Validity of the cache: a job that did not fit cannot fit until one of the version numbers in tried_jobs.py
    changes. `seen` contains these numbers as they were in the last cycle that tried all lanes. While neither
    the numbers nor the first waiting job change, a cycle tries only jobs that were submitted later.
    `again_at` is the next time at which a job may start although none of these numbers has changed.

    Cost: O(lanes) for a cycle that tries all lanes and starts no job, O(new jobs) for a cycle without
    changes.
    """

    def __init__(
        self, state: State, placer: Placer, profile: str = "", guards_of: GuardsOf | None = None
    ) -> None:
        pipeline = placer.pipeline
        self.state = state
        self.placer = placer
        self.profile = profile
        self.queue = state.queues[profile]
        self.backfill = pipeline.backfill
        self.estimating = pipeline.estimating
        self.preemption = Preemptor(state, placer, pipeline.strategies, pipeline.guards, guards_of)
        self.limits = StartLimits(state, placer)
        self.quota_reservations = QuotaReservations(state, self.limits, self.runtime)
        self.deadline_guard = DeadlineGuard(state, placer, self.limits, self.queue)
        self.search = StartSearch(state, placer, self.limits, self.deadline_guard)
        self.guards_deadlines = self.search.guards_deadlines
        """True if backfilled jobs must leave free the resources that jobs with a deadline need."""
        self.lifts_deadlines = pipeline.deadlines is DeadlinePolicy.LIFT
        """True if a job that must start now to meet its deadline is tried before all other jobs."""
        self.head: QueueEntry | None = None
        """The job at which the last cycle that tried all lanes stopped: it neither fitted nor could preempt
        others. None without such a job, and with conservative backfill.
        """
        self._own_reservations = QueueReservations(state, placer, self.runtime)
        self.easy = FirstReservation(self)
        self.position_of: PositionKey | None = None
        """The function that computes the queue position of an entry in this cycle. None if the entries
        themselves are the positions.
        """
        self.seen: tuple[int, ...] = ()
        """The result of `versions` (tried_jobs.py) in the last cycle that tried all lanes and left a job
        waiting. Later cycles compare it with the present result, to find out if they can skip jobs that were
        tried before.
        """
        self.shared: SharedReservations | None = None
        """The backfill reservations on nodes that this scheduler profile shares with other profiles. None if
        this profile shares no nodes.
        """
        self.partial_start_at = NEVER
        """The next time at which the wait of a gang for all its nodes (the assembly time) ends. From then on
        the gang may start on fewer nodes.
        """
        self._now = 0.0
        self._conservative = ConservativePass(self)
        order = service_order(self.queue.order)
        self.slices = SlicePass(self, order, pipeline.slice_s) if pipeline.slice_s and order else None
        """Lets jobs use the GPUs in turns (time slices); None without `[scheduler] slice_s`."""

    @property
    def scavengers(self) -> Scavengers | None:
        """The scavengers (jobs of the lowest priority), which may run on reserved GPUs until other jobs
        preempt them. None if there are none.
        """
        return None if self.shared is None else self.shared.scavengers

    @property
    def reservations(self) -> QueueReservations:
        """The backfill reservations of this scheduler profile in a reservation table. With EASY backfill, the
        table has reservations only if other profiles use the same nodes.
        """
        return self._own_reservations if self.shared is None else self.shared.reservations

    @property
    def again_at(self) -> float:
        """The next time at which a waiting job may start only because time has passed."""
        urgent_at = self.deadline_guard.again_at(self._now) if self.lifts_deadlines else NEVER
        slices_at = NEVER if self.slices is None else self.slices.again_at
        return min(
            slices_at, self.preemption.retry_at, self.limits.again_at, self.partial_start_at, urgent_at
        )

    @property
    def in_queue_order(self) -> bool:
        """True if backfill tries candidates in queue order: if the backfill plugin says so, or if predictions
        are configured and the guard of predictions does not permit them.
        """
        return self.backfill.in_queue_order or (
            self.estimating.predicted and not self.state.estimates.trusted
        )

    # The steps of one scheduling cycle

    def run(self, now: float, apply: Apply, *, overran: bool = False) -> None:
        """Run one cycle over the queue.

        1. Start jobs whose preemption victims have ended. Cancel nominations that jobs can no longer use.
        2. Start waiting jobs in queue order until one does not fit. Look for victims (jobs to preempt) if
           this job may preempt others.
        3. Make a backfill reservation for the job that does not fit. On nodes that scheduler profiles share,
           jobs_to_reserve.py may choose further jobs for reservations.
        4. Backfill: start later jobs that do not delay the reserved start.
        5. Start jobs that fit only with a shorter time limit (short_starts.py). If no job waits, grow elastic
           jobs.

        If nothing has changed since the last cycle, steps 2 and 3 are skipped, and step 4 tries only new
        jobs. With conservative backfill every waiting job has a reservation. Steps 2 to 4 are then replaced
        by one step: start the jobs whose reserved start has come. With `[scheduler] slice_s`, SlicePass
        replaces steps 2 to 4.

        `overran` is True if a job has run longer than predicted. The cycle then tries all waiting jobs again.

        Example: there are two nodes of 8 GPUs, and job 1 holds 8 GPUs until 10:00. The queue is job 2 (16
        GPUs), job 3 (8 GPUs, limit 30 min) and job 4 (8 GPUs, limit 2 h). At 9:00 job 2 does not fit and gets
        a reservation for 10:00. Job 3 starts, because it ends before 10:00. Job 4 waits.
        """
        state, queue = self.state, self.queue
        self._now = now
        # Compute the deadline reservations again in this cycle, because jobs may have started or ended since
        # the last cycle.
        self.deadline_guard.reserved = None
        if state.claims:
            # Start jobs whose victims have ended (step 1 of `run`).
            start_preemptors(self, now, apply)
        due = self._take_due(now) or overran
        fresh = list(queue.new_jobs)
        queue.new_jobs.clear()
        if queue.lanes:
            self.sort_by(now)
            if self.slices is not None:
                self.slices.run(now, apply)
            elif self.backfill.reserves is Reserves.ALL_JOBS:
                self._conservative.run(now, apply, due=due)
            elif due or self.head is None or not only_new_jobs_matter(self, self.head, fresh):
                self._run_in_order(now, apply)
            else:
                lanes = [(job, lane) for job in fresh if (lane := queue.lane(job)) is not None]
                backfill_new(self, lanes, now, apply)
                if self.shared is not None:
                    preempt_scavengers(self, [lane for _, lane in lanes], now, apply)
            if state.shortenable:
                start_short_jobs(self, now, apply)
            if self.head is not None:
                self.easy.record(now, apply)
        # Grow elastic jobs if no job waits (step 5 of `run`).
        if state.elastic and not len(state.queue if self.shared else queue):
            grow_elastic_jobs(state, self.placer, self.limits, queue, now, apply)

    def sort_by(self, now: float) -> None:
        """Set `position_of`, by which this cycle sorts waiting jobs."""
        state, queue = self.state, self.queue
        gangs_first = state.gang_after_s is not None and bool(queue.gang_lanes)
        moves = queue.moving is not None or gangs_first or (state.limited and state.orders_by_limits)
        self.position_of = position_key(state, queue, now) if moves else None

    def _take_due(self, now: float) -> bool:
        """Return whether a waiting job may now be able to start only because time has passed. For example,
        old GPU time no longer counts for a quota on GPU-hours. Forget the times that have come.
        """
        due = False
        if self.partial_start_at <= now:
            due, self.partial_start_at = True, NEVER
        if self.preemption.retry_at <= now:
            due, self.preemption.retry_at = True, NEVER
        if self.limits.again_at <= now:
            due, self.limits.again_at = True, NEVER
        if self.shared is not None and self.shared.due(now):
            due = True
        return due or (self.lifts_deadlines and bool(self.deadline_guard.urgent(now)))

    def position(self, entry: QueueEntry) -> QueueEntry:
        """Return the sort key, in this cycle, of a waiting job with the queue entry (rank, id).

        The key may depend on time or on the usage of tenants.
        """
        return entry if self.position_of is None else self.position_of(entry)

    # Steps 2 to 4 of `run`, for every kind of backfill except conservative backfill

    def _run_in_order(self, now: float, apply: Apply) -> None:
        self.head = None
        if self.state.limited:
            self.quota_reservations.clear()
        self.queue.pending_reasons.clear()
        self.queue.lane_pending_reasons.clear()
        if self.queue.moving is not None and compares_shares(self.queue.moving):
            rationed = rationed_users(self, now)
            if rationed != self.queue.rationed:
                self.queue.rationed = rationed
                self.sort_by(now)  # Sort again: the queue order may depend on the rationed users.
        if self.lifts_deadlines:
            start_urgent_jobs(self, now, apply)
        # Start jobs in queue order (step 2 of `run`).
        self._start_in_order(now, apply)
        shared = self.shared
        # Reserve nodes for the first waiting job (step 3 of `run`), and for further jobs on nodes that the
        # first job cannot use. Do this here only if other scheduler profiles use the same nodes. Otherwise
        # `easy` computes the reservation below.
        if shared is not None:
            shared.reserve(jobs_to_reserve(self, now), now)
        if self.head is not None:
            # The reservation of an earlier cycle is out of date. Store the versions only if a job waits.
            # Without a waiting job there is nothing that the next cycle could skip.
            self.easy.renew(now)
            self.seen = versions(self)
        if self.head is not None or (self.state.limited and self.quota_reservations):
            # Backfill (step 4 of `run`).
            backfill_all(self, now, apply)
        if shared is not None:
            preempt_scavengers(self, self.queue, now, apply)
        if self.guards_deadlines:
            for warning in self.deadline_guard.warnings(now):
                apply(warning)

    def _start_in_order(self, now: float, apply: Apply) -> None:
        """Start jobs in queue order until a job neither fits nor can preempt others.

        1. A heap contains the first job of each lane (list of jobs with the same request), sorted by queue
           position. During a cycle a job can only move back in the queue. So the position of a job is
           computed again when the job reaches the top of the heap.
        2. A job over a quota or fair-share limit starts on fewer nodes if this is allowed. Otherwise the job
           is skipped, usually with its whole lane, and quota is reserved for the job (limited_starts.py).
        3. With `deadlines = "lift"`: if the job would take the last nodes that another job needs to meet its
           deadline, the other job is tried first.
        4. If a job does not fit, fewer nodes are tried, then preemption. If both fail, the job is `head`, the
           first waiting job, and the loop ends.
        """
        position_of = self.position_of
        heads = [
            (head if position_of is None else position_of(head), head, lane)
            for lane in self.queue.lanes.values()
            if (head := lane.head()) is not None
        ]
        heapq.heapify(heads)
        while heads:
            position, head, lane = heads[0]
            number = head[1]
            # Skip a job that was started or nominated earlier in this cycle because of its deadline.
            if self.lifts_deadlines and number not in self.queue:
                self._next_in_lane(heads, head)
                continue
            if position_of is not None and (moved_to := position_of(head)) > position:
                # Put the job back into the heap, because it is now further back in the queue: jobs of the
                # same tenant have started in this cycle.
                heapq.heapreplace(heads, (moved_to, head, lane))
                continue
            if self.state.limited and (over := shut_if_over(self, lane, number, now)) is not None:
                continues = start_on_fewer(self, lane, number, over, now, apply)
                self._next_in_lane(heads, head if continues else None)
                continue
            first, first_lane = number, lane
            if self.lifts_deadlines and (first := job_to_try_first(self, number, now)) != number:
                first_lane = self.queue.lane(first) or lane
            placement = self.find_or_block(first_lane, first, now, for_deadlines=self.lifts_deadlines)
            job = self.state.jobs[first]
            if placement is None:
                placement = self.find_fewer(job, now)
            if placement is not None:
                self.start(first, placement, now, apply)
            elif (plan := plan_preemption(self, job, now)) is not None:
                apply(plan)
            else:
                self.head = self.queue.entry(first)
                return
            if first == number:
                self._next_in_lane(heads, head)

    def _next_in_lane(
        self, heads: list[tuple[QueueEntry, QueueEntry, Lane]], after: QueueEntry | None
    ) -> None:
        """Replace the job at the top of the heap `heads` by the next job of the same lane (list of jobs with
        the same request).

        The next job is the one after `after`. If `after` is None or the last job of the lane, remove the lane
        from the heap.
        """
        lane = heads[0][2]
        following = lane.after(after) if after is not None and lane.ranks else None
        if following is None:
            heapq.heappop(heads)
        else:
            position = following if self.position_of is None else self.position_of(following)
            heapq.heapreplace(heads, (position, following, lane))

    # Helpers of steps 2 to 4 of `run`

    def find_or_block(
        self, lane: Lane, number: int, now: float, *, for_deadlines: bool = False
    ) -> Placement | None:
        """Return a placement with which the job can start now; None if there is none.

        If too few nodes or licences are free, skip the whole lane (list of jobs with the same request) until
        nodes or licences become free. If the job fits only on nodes that are kept for other jobs or users,
        record this as its pending reason.

        If `for_deadlines` is True, resources that another waiting job needs to meet its deadline also count
        as kept.
        """
        job, shared = self.state.jobs[number], self.shared
        barred = None
        if self.state.bars_nodes or (for_deadlines and self.guards_deadlines):
            barred = self.search.barred(job, now, for_deadlines=for_deadlines)
        placement = self.placer.find(job.ask, barred) if shared is None else shared.find(job, barred, now)
        if placement is None and shared is not None and self.placer.fits(lane.ask):
            placement = shared.find_before(job, reserved_behind(self, number), barred, now)
        if placement is None and shared is not None and self.placer.fits(lane.ask):
            placement = self.search.find_overruling(job, barred, now)
        excluded = barred is not None or shared is not None
        if placement is None and excluded and self.placer.fits(lane.ask):
            self.keep_out(number, now)
        elif placement is None:
            lane.fit.block(self.state.nodes.room_version)
        elif lane.ask.licences and self.state.licences.insufficient(lane.ask.licences):
            lane.fit.block(self.state.nodes.room_version, Reason.LICENCE)
            return None
        return placement

    def keep_out(self, number: int, now: float) -> None:
        """Set the pending reason of a job that fits on free nodes but may not use these nodes.

        For example, an operator has reserved the nodes for other users.
        """
        self.queue.pending_reasons[number] = self.search.why_kept_out(self.state.jobs[number], now)

    def find_fewer(self, job: Job, now: float) -> Placement | None:
        """Return a placement on fewer nodes than the job requests; None if there is none.

        A gang that accepts fewer nodes first waits for all its nodes (the assembly time). During the assembly
        time, return None. Also set `partial_start_at` to the end of the assembly time, so that a cycle tries
        the gang again then.
        """
        if job.ask.least is not None and not self.state.licences.insufficient(job.ask.licences):
            ripe_at = accepts_fewer_from(job)
            if now < ripe_at:
                self.partial_start_at = min(self.partial_start_at, ripe_at)
                return None
        return self.search.find_fewer(job, now)

    def start(
        self, number: int, placement: Placement, now: float, apply: Apply, short: ShortLimit | None = None
    ) -> None:
        """Update the deadline reservations and the quota reservations, then start the job with a JobPlaced
        event. `short` is the time limit of the attempt, if this limit is shorter than the limit of the job.
        """
        if self.shared is not None:
            self.shared.reservations.forget(number)
        job = self.state.jobs[number]
        job = job if short is None else with_short_limit(job, short)
        if self.guards_deadlines and (shape := self.placer.shape(job.ask)) is not None:
            self.deadline_guard.take(job, shape, placement, now)
        if self.state.limited:
            self.quota_reservations.take(job, now)
        estimates, rules = self.state.estimates, self.estimating
        predicted = estimates.predict(job, rules) if estimates.runs else None
        planned = None
        if (estimates.runs or rules.default_s < NEVER) and (rules.predicted or job.limit == NEVER):
            planned = estimates.planned(job, rules)
        # Call `next_attempt` only if `corral admin accept-loss` has skipped attempt numbers. This is seldom,
        # and every start of a job runs this code.
        skipped = self.state.skipped
        attempt = job.attempt + 1 if skipped is NONE_SKIPPED else skipped.next_attempt(number, job.attempt)
        places = placement.allocations
        quality, profile = placement.quality, self.profile
        apply(JobPlaced(number, now, attempt, places, quality, predicted, planned, profile, short))

    # Methods about backfill reservations, which this package and `corral explain` call

    def runtime(self, job: Job) -> float:
        """Return the assumed run time of a waiting job in seconds.

        If the scheduler profile uses predictions, this is the prediction. Otherwise the run time is the time
        limit plus the grace. For a job without a time limit, the run time is the prediction or `[jobs]
        default_time_limit_s`.
        """
        rules, span = self.estimating, job.span
        if not rules.predicted and span != NEVER:
            return span
        planned = self.state.estimates.planned(job, rules)
        return span if planned is None else planned

    def first_reservation(self, now: float) -> GuaranteedStart | None:
        """Return the start that is guaranteed to the first waiting job. Return None if this job has no
        backfill reservation.
        """
        if self.shared is None:
            return self.easy.reservation(now)
        return None if self.head is None else self.shared.reservation_of(self.head[1])

    def share(self, shared: SharedReservations | None) -> None:
        """Keep this scheduler profile's backfill reservations in the table that several profiles share.

        If `shared` is None, keep the reservations in a table of this profile alone.
        """
        if shared is not self.shared:
            self.reservations.forget_all()
            self.shared = self.search.shared = self.limits.shared = shared
            self.head = None

    def resume(self, other: Cycle) -> None:
        """Copy the backfill reservations from `other`, the `Cycle` of the same scheduler profile for another
        copy of the cluster state. Copying the reservations is faster than computing them again.
        """
        self.reservations.resume(other.reservations)
        self.easy.resume(other.easy)
        self.limits.again_at = other.limits.again_at
        self.preemption.retry_at = other.preemption.retry_at
