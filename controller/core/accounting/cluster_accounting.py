"""Counts the GPU-hours of a cluster while it runs: use, demand, entitlement, idle GPUs and lost work.

Algorithm. The controller and the simulator call `advance` before an input and `observe` after the input.
1. For each event about a job, `observe` counts again the GPUs that the job holds or requests. `observe` also
   adds up the GPU-seconds of the job's tenant (a user in a project). A waiting job counts only if it may
   start. A job may not start while it is held, or while a gate (dependency, begin time, array limit) is
   closed.
2. `advance` closes the steps that have ended. A step is a period of `step_s` seconds. A sample is the number
   of idle GPUs by cause (idle_causes.py). Nothing has changed since the last input, so one sample is valid
   for all these steps. If no GPU is idle in this sample, GPUs may still have been idle earlier in the step.
   The causes of this idle time are taken from the last sample with idle GPUs.
3. For each closed step, divide the capacity between the tenants by max-min fairness (max_min.py), with their
   weights and their mean demands in the step. The capacity is the number of all GPUs without the idle GPUs
   that take no new jobs, such as idle GPUs of drained nodes.
4. Add the GPU-hours used, demanded, entitled and idle to the hour of the step (hours.py).

Jobs of the priority SCAVENGER count neither as use nor as demand and have no entitlement, because they only
use GPUs that other jobs leave idle.

Invariant: the figures never influence a decision. The same inputs at the same times give the same figures.
Cost: O(1) for an event, O(tenants) for a step, and one sample of idle GPUs for a step. A time without inputs
costs one step for each hour.

Example: 8 GPUs, two projects of weight 1. Project a holds all GPUs for an hour, while b waits for 4. For this
hour, a has 8 GPU-hours used and 4 entitled, and b has 0 used and 4 entitled.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from controller.core.accounting.hours import HOUR_S, KEPT_DAYS, Period, Periods, Tenant
from controller.core.accounting.idle_causes import CLOSED, IdleCause, IdleSampler
from controller.core.accounting.max_min import GpuModels, entitled_parts
from controller.core.accounting.wait_histogram import bin_of
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.engine import Engine
from controller.core.fairshare.share_tree import SharePath
from controller.core.model.events.attempts import (
    AttemptStarted,
    CheckpointSaved,
    EndWarned,
    JobEnded,
    JobPlaced,
    JobPreempted,
    JobRequeued,
    MemberReady,
    MembersStarted,
    PredictionOutlived,
    StepsRecorded,
    StopRequested,
)
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nominations import WINDOW_CLOSED
from controller.core.model.events.queued import DeadlineAtRisk, StartEstimated, WaitAlarmed
from controller.core.model.job import NEVER, Job
from controller.core.model.rows import NoteRow
from controller.core.quota.usage_counters import GPU
from controller.core.state.state import State
from wire.names import PRIORITIES, WHOLE_GPU, JobState, Reason

STEP_S = 60.0
SAVE_S = 300.0
"""Seconds between two writes of the figures of the present hour. A crash loses at most the figures since the
last write.
"""
BACKFILL_WINDOW = "backfill window closed"
PREEMPTION, NODE_LOSS, GPU_FAULT, TIME_LIMIT = "preemption", "node loss", "GPU fault", "time limit too short"
_LOSSES = {
    Reason.NODE_LOST: NODE_LOSS,
    Reason.SUPERVISOR_LOST: NODE_LOSS,
    Reason.GPU_FAILED: GPU_FAULT,
    Reason.GPU_ERROR: GPU_FAULT,
    Reason.TIME_LIMIT: TIME_LIMIT,
}
"""For each reason why an attempt ended: the cause under which the lost work of the attempt is reported."""
_WITHOUT_USE = {
    StartEstimated,
    WaitAlarmed,
    PredictionOutlived,
    DeadlineAtRisk,
    MemberReady,
    StopRequested,
    StepsRecorded,
    EndWarned,
}
"""Events that change neither a job's GPUs nor its amount of unsaved work. `observe` skips these events."""
_SCAVENGER = PRIORITIES["SCAVENGER"]
_ONLY_SAVED = {AttemptStarted, MembersStarted, CheckpointSaved}
"""Events that change a job's amount of unsaved work, but not its GPUs. `observe` does not count the GPUs
again.
"""
_NOTED = {JobPlaced, JobPreempted, JobRequeued, JobEnded}
"""Events that change the figures of waits, ended jobs and lost work."""


@dataclasses.dataclass(slots=True)
class _JobUse:
    """The GPUs that a job holds or waits for. The work of the job since `unsaved_since` is not saved in a
    checkpoint.
    """

    tenant: Tenant
    models: GpuModels
    scavenges: bool
    held: float
    wanted: float
    unsaved_since: float


@dataclasses.dataclass(slots=True)
class _TenantUse:
    """The number of GPUs that a tenant holds now, and the number that its running and waiting jobs demand
    now. Also the GPU-seconds of both numbers since the last closed step of ClusterAccounting.
    """

    since: float
    held: float = 0.0
    scavenged: float = 0.0
    demand: defaultdict[GpuModels, float] = dataclasses.field(default_factory=lambda: defaultdict(float))
    """The number of GPUs of running and waiting jobs, by the GPU models that these jobs accept."""
    held_s: float = 0.0
    scavenged_s: float = 0.0
    demand_s: defaultdict[GpuModels, float] = dataclasses.field(default_factory=lambda: defaultdict(float))
    jobs: int = 0

    def integrate(self, until: float) -> None:
        """Add the GPU-seconds from the time `self.since` to the time `until` to the sums of the tenant."""
        seconds = until - self.since
        if seconds <= 0:
            return
        self.since = until
        self.held_s += self.held * seconds
        self.scavenged_s += self.scavenged * seconds
        for models, gpus in self.demand.items():
            self.demand_s[models] += gpus * seconds

    def change(self, use: _JobUse, sign: int) -> None:
        """Add the GPUs of a job to the GPUs that the tenant holds and demands now (`sign` 1), or subtract
        them (`sign` -1).
        """
        self.jobs += sign
        if use.scavenges:
            self.scavenged += sign * use.held
            return
        self.held += sign * use.held
        self.demand[use.models] += sign * (use.held + use.wanted)
        if not self.jobs:
            # Set the numbers to exactly zero when the tenant has no job left, because sums of parts of GPUs
            # can leave small rounding errors.
            self.held = self.scavenged = 0.0
            self.demand.clear()


class ClusterAccounting:
    """The GPU-hours of one cluster by hour and tenant. The docstring of this module has the algorithm."""

    def __init__(
        self, step_s: float = STEP_S, kept_days: int = KEPT_DAYS, starts_at: float = -math.inf
    ) -> None:
        """Begin with empty figures at the time `starts_at`. `step_s` is the length of a step in seconds.
        `step_s` is rounded down to a divisor of an hour. GPU-hours before the time `starts_at` are not
        counted.
        """
        self.periods = Periods(kept_days)
        self.last_input_at = starts_at
        self._starts_at = starts_at
        # The length of a step must divide an hour, so that each step lies within one hour.
        self._step_s = max(each for each in range(1, HOUR_S + 1) if not HOUR_S % each and each <= step_s)
        self._settled_at: float | None = None
        """The end of the last closed accounting step (period of `step_s` seconds); None before the first
        input.
        """
        self._saved_at = -math.inf
        self._idle: Mapping[IdleCause, float] = {IdleCause.NO_JOB: 1.0}
        """The last sample (idle GPUs by cause) that was not empty."""
        self._sampler = IdleSampler()
        self._uses: dict[int, _JobUse] = {}
        self._tenants: dict[Tenant, _TenantUse] = {}

    def load(self, state: State, notes: Iterable[NoteRow]) -> None:
        """Load the stored figures, and count the GPUs of the jobs in a restored state. The time before the
        next input is not counted, because the controller did not run then.
        """
        self.periods.load(notes)
        self._uses.clear()
        self._tenants.clear()
        self._settled_at = None
        for job in state.live():
            self._recount(state, job.id, 0.0)

    def advance(self, engine: Engine, now: float) -> None:
        """Close all accounting steps (periods of `step_s` seconds) that have ended by `now`. Call this method
        before the state changes at `now`.
        """
        if now < self._starts_at:
            return
        self.last_input_at = now
        if self._settled_at is None:
            self._settled_at = now
            for use in self._tenants.values():
                use.since = now
        elif now >= self._settled_at + self._step_s:
            self.close_until(engine, math.floor(now / self._step_s) * self._step_s)

    def close_until(self, engine: Engine, end: float) -> None:
        """Add the GPU-hours until `end` to the figures, and begin a new accounting step at `end`. The state
        must not have changed since the last input.
        """
        if self._settled_at is None or self._settled_at >= end:
            return
        self._idle = idle = self._sampler.sample(engine, self._settled_at) or self._idle
        while self._settled_at < end:
            hour_ends = (self._settled_at // HOUR_S + 1) * HOUR_S
            self._settled_at = self._close_step(engine.state, self._settled_at, min(end, hour_ends), idle)

    def observe(self, state: State, happened: Iterable[Event], now: float) -> None:
        """Count again the GPUs of the jobs that these events have changed at `now`. Add starts, ends and lost
        work of jobs to the figures.
        """
        jobs: dict[int, None] = {}
        for event in happened:
            kind = type(event)
            if kind in _WITHOUT_USE or not isinstance(event, JobEvent):
                continue
            if kind in _ONLY_SAVED:
                use, job = self._uses.get(event.job), state.jobs.get(event.job)
                if use is not None and job is not None and use.held:
                    use.unsaved_since = job.unsaved_since
                continue
            jobs[event.job] = None
            if kind in _NOTED:
                self._note(state, event)
        for number in jobs:
            self._recount(state, number, now)

    def take_changed(self, now: float) -> list[NoteRow]:
        """Return the database rows of the hours and days whose figures have changed. The list is empty if
        rows were returned less than SAVE_S seconds ago.
        """
        if now < self._saved_at + SAVE_S:
            return []
        rows = self.periods.take_changed()
        if rows:
            self._saved_at = now
        return rows

    def _note(self, state: State, event: JobEvent) -> None:
        """Add one event to the figures: the wait of a job at its first start, the end of a job (counted for
        its queue), or the GPU-hours of unsaved work that were lost at the end of an attempt.
        """
        job = state.jobs.get(event.job)
        if isinstance(event, JobPlaced):
            if event.attempt == 1 and job is not None:
                self._note_first_start(state, job, event.at)
        elif isinstance(event, JobPreempted):
            closed = WINDOW_CLOSED in event.by
            self._lose(BACKFILL_WINDOW if closed else PREEMPTION, event.gpu_hours, event.at)
        elif isinstance(event, (JobRequeued, JobEnded)):
            if job is not None and isinstance(event, JobEnded):
                figures = self.periods.at(event.at).queue(job.spec.queue)
                if event.state is JobState.COMPLETED:
                    figures.completed += 1
                else:
                    figures.failed += 1
            use = self._uses.get(event.job) if event.reason in _LOSSES else None
            if use is not None and use.unsaved_since < NEVER:
                unsaved_s = max(0.0, event.at - use.unsaved_since)
                self._lose(_LOSSES[event.reason], use.held * unsaved_s / HOUR_S, event.at)

    def _note_first_start(self, state: State, job: Job, at: float) -> None:
        """Count the first start of a job, and its wait, in the figures of its queue and of its tenant."""
        period, wait_s = self.periods.at(at), max(0.0, at - job.ready_at)
        found, target_s = bin_of(wait_s), state.quotas.rules.queue(job.spec.queue).wait_target_s
        queue = period.queue(job.spec.queue)
        queue.started += 1
        queue.add_wait(wait_s, found)
        if target_s is not None:
            queue.with_target += 1
            queue.in_target += wait_s <= target_s
        if job.ask.part.wants_gpus and not _scavenges(job):
            period.tenant(_tenant(job)).add_wait(wait_s, found)

    def _lose(self, cause: str, gpu_hours: float, at: float) -> None:
        if gpu_hours:
            self.periods.at(at).lost[cause] += gpu_hours

    def _recount(self, state: State, job_id: int, now: float) -> None:
        """Count the GPUs of a changed job again in the figures of its tenant: the GPUs that the job holds, or
        the GPUs that it requests while it waits.
        """
        job = state.jobs.get(job_id)
        use = None if job is None or job.ended_at is not None else _use_of(state, job)
        before = self._uses.pop(job_id, None)
        if use is not None:
            self._uses[job_id] = use
        if _same_gpus(before, use):
            return
        if before is not None:
            self._change(before, -1, now)
        if use is not None:
            self._change(use, 1, now)

    def _change(self, use: _JobUse, sign: int, now: float) -> None:
        """Add the GPUs of a job to its tenant (`sign` 1), or subtract them (`sign` -1)."""
        tenant = self._tenants.get(use.tenant)
        if tenant is None:
            tenant = self._tenants[use.tenant] = _TenantUse(now)
        if tenant.since < now:
            tenant.integrate(now)
        tenant.change(use, sign)

    def _close_step(self, state: State, begin: float, end: float, idle: Mapping[IdleCause, float]) -> float:
        """Add the GPU-hours between `begin` and `end` to the figures of the hour that contains both times.
        Return `end`.

        `idle` is the sample with the number of idle GPUs for each cause.
        """
        seconds, period = end - begin, self.periods.at(begin)
        demands: dict[SharePath, Mapping[GpuModels, float]] = {}
        paths = {tenant: state.shares.path(*tenant) for tenant in self._tenants}
        capacity = float(state.nodes.columns.gpu_count.sum())
        unused = capacity * seconds
        for tenant, use in self._tenants.items():
            use.integrate(end)
            unused -= use.held_s + use.scavenged_s
            demands[paths[tenant]] = {models: gpu_s / seconds for models, gpu_s in use.demand_s.items()}
        # The idle GPU-hours are known for the whole step, but the causes are known only for the end of the
        # step. Scale the causes, so that used and idle GPU-hours add up to all GPU-hours of the cluster.
        scale = max(0.0, unused) / seconds / (sum(idle.values()) or 1.0)
        for cause, gpus in idle.items():
            period.idle[cause.value] += scale * gpus * seconds / HOUR_S
        capacity -= scale * sum(idle.get(cause, 0.0) for cause in CLOSED)
        period.capacity += capacity * seconds / HOUR_S
        limits = _Limits(state)
        parts = entitled_parts(capacity, demands, limits.weight, limits.gpus_of, limits.most)
        for tenant, use in [*self._tenants.items()]:
            self._add_tenant(period, tenant, use, parts[paths[tenant]] * seconds / HOUR_S)
            if not use.jobs:
                del self._tenants[tenant]
        return end

    @staticmethod
    def _add_tenant(period: Period, tenant: Tenant, use: _TenantUse, entitled: float) -> None:
        demanded = sum(use.demand_s.values()) / HOUR_S
        if demanded or use.scavenged_s:
            figures = period.tenant(tenant)
            figures.got += use.held_s / HOUR_S
            figures.scavenged += use.scavenged_s / HOUR_S
            figures.demanded += demanded
            figures.entitled += entitled
        use.held_s = use.scavenged_s = 0.0
        use.demand_s.clear()


class _Limits:
    """The weights, quotas and numbers of GPUs by model that `entitled_parts` needs to divide the capacity of
    a step.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._gpus_of: dict[GpuModels, float] = {}

    def weight(self, path: SharePath) -> float:
        """Return the weight of a tenant."""
        share = self._state.shares.accounts.get(path)
        return 1.0 if share is None else share.weight

    def gpus_of(self, models: GpuModels) -> float:
        """Return how many GPUs of the cluster have one of these models. For an empty tuple, return the number
        of all GPUs.
        """
        found = self._gpus_of.get(models)
        if found is None:
            columns = self._state.nodes.columns
            if models:
                codes = columns.model_codes(models)
                found = float(sum((columns.gpu_model == code).sum() for code in codes))
            else:
                found = float(columns.gpu_count.sum())
            self._gpus_of[models] = found
        return found

    def most(self, path: SharePath) -> float:
        """Return how many GPUs the quota of a tenant allows; infinity if there is no quota. The tenant is a
        project, or a user within a project.
        """
        shares, quotas = self._state.shares, self._state.quotas
        if quotas.unlimited or path[-1] in shares.sharing.organisations:
            return math.inf
        is_user = len(path) > 1 and path[-2] not in shares.sharing.organisations
        bounds = quotas.limits_of(("user" if is_user else "project", path[-1]))
        hard = dict(bounds.hard).get(GPU)
        return math.inf if hard is None else (hard + bounds.lent.get(GPU, 0)) / WHOLE_GPU


def _same_gpus(before: _JobUse | None, use: _JobUse | None) -> bool:
    """Return whether the figures of the tenant stay the same if `use` replaces `before`."""
    if before is None or use is None:
        return before is use
    return (
        before.held == use.held
        and before.wanted == use.wanted
        and before.tenant == use.tenant
        and before.scavenges == use.scavenges
        and before.models == use.models
    )


def _tenant(job: Job) -> Tenant:
    return job.spec.project, job.user


def _scavenges(job: Job) -> bool:
    return job.spec.priority <= _SCAVENGER


def _use_of(state: State, job: Job) -> _JobUse | None:
    """Return the GPUs that a job holds or waits for. Return None if the job needs no GPU, or if the job waits
    and may not start yet.
    """
    held = wanted = 0.0
    if job.state is JobState.QUEUED:
        if job.held or job.wait.gates or not job.ask.part.wants_gpus:
            return None
        needs = gpu_needs_of(job.ask.part, state.nodes.columns)
        wanted = needs.max_milli * (job.ask.nodes or 1) / WHOLE_GPU
    else:
        held_milli = 0
        for member in job.members.values():
            if member.ended_at is None:
                for hold in member.allocation.gpus:
                    held_milli += hold.milli
        held = held_milli / WHOLE_GPU
    if not held and not wanted:
        return None
    unsaved_since = job.unsaved_since if held else NEVER
    return _JobUse(_tenant(job), job.spec.gpu_models, _scavenges(job), held, wanted, unsaved_since)
