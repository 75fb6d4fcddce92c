"""Usage counters: the resources that the jobs of each user, project and queue hold now. Only `apply` (the
function that applies events to the state) changes the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from controller.core.cluster.node_table import names_model
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.quota.queue_rules import EXEMPT_QUOTA, NO_QUEUE_RULE, QueueRule
from wire.job.spec import JobSpec
from wire.names import JobState

CPU, MEMORY, GPU, RUNNING, QUEUED, GPU_TIME = range(6)
"""Indices of resources in an Amount. The units are 1/1000 CPUs, MiB, 1/1000 GPUs, running jobs, queued jobs
and 1/1000 GPU-seconds.
"""
FIRST_MODEL = 6
"""The index in an Amount of the first GPU model of `UsageCounters.models`. The unit is 1/1000 GPUs."""
Amount = tuple[int, ...]
"""One amount for each resource. The six resources from CPU to GPU_TIME come first, then each GPU model on
which a quota has a limit.
"""

HOUR_S = 3_600
WEEK_S = 7 * 24 * HOUR_S

TenantKey = tuple[str, str]
"""(scope, name) of a tenant, for example ("user", "ada")."""
QUEUE_USER = "queue-user"
"""The scope of a user within a queue that limits its users, for example ("queue-user", "interactive/ada")."""


def queue_user(queue: str, user: str) -> TenantKey:
    """Return the key of a user within a queue."""
    return QUEUE_USER, f"{queue}/{user}"


ModelsOfNode = Callable[[str], Mapping[str, str]]
"""A function that returns the model of each GPU of a node, by GPU UUID."""


def no_models(_node: str) -> Mapping[str, str]:
    """Return an empty dictionary in place of the models of a node's GPUs. Used if no quota limits a GPU
    model.
    """
    return {}


class TenantUsage:
    """The usage counters of one user, project or queue, or of one user in one queue.

    GPU time is counted in two places. `used[GPU_TIME]` is the GPU time of running attempts, as if each
    attempt ran to its time limit. `spent` is the GPU time of ended attempts, by hour.
    """

    __slots__ = ("_spent", "key", "spent", "used")

    def __init__(self, key: TenantKey, models: int = 0) -> None:
        self.key = key
        self.used = [0] * (FIRST_MODEL + models)
        self.spent: dict[int, int] = {}
        """GPU time of ended attempts by the hour of their end, the oldest hour first. Unit: 1/1000
        GPU-seconds.
        """
        self._spent = 0

    def amount(self, kind: int, now: float, window_s: float) -> int:
        """Return how much of one resource the tenant uses. GPU time includes that of attempts that ended in
        the last `window_s` seconds.
        """
        if kind != GPU_TIME or not self._spent:
            return self.used[kind]
        return self.used[kind] + self._spent - sum(self._over(now, window_s))

    def falls_at(self, now: float, window_s: float) -> float:
        """Return the next time at which the counted GPU time of ended attempts decreases, because an hour
        leaves the time window of `window_s` seconds. Return NEVER if no GPU time of ended attempts is
        counted.
        """
        leaving = ((hour + 1) * HOUR_S + window_s for hour in self.spent)
        return next((moment for moment in leaving if moment > now), NEVER)

    def spend(self, milli_s: int, at: float, window_s: float) -> None:
        """Add the GPU time of an attempt that ended at the time `at`. Drop the hours that are older than
        `window_s` seconds.
        """
        for _ in [*self._over(at, window_s)]:
            self._spent -= self.spent.pop(next(iter(self.spent)))
        hour = int(at // HOUR_S)
        self.spent[hour] = self.spent.get(hour, 0) + milli_s
        self._spent += milli_s

    def load_spent(self, spent: Mapping[int, int]) -> None:
        """Set the GPU time of ended attempts to the values stored in the database."""
        self.spent = dict(sorted(spent.items()))
        self._spent = sum(spent.values())

    def _over(self, now: float, window_s: float) -> Iterator[int]:
        """Yield the GPU time (in 1/1000 GPU-seconds) of each hour that ended more than `window_s` seconds
        before `now`, oldest first.
        """
        first = int((now - window_s) // HOUR_S)
        for hour, milli_s in self.spent.items():
            if hour >= first:
                return
            yield milli_s


class UsageCounters:
    """The counters of all tenants. A job is counted for up to four tenants: its user, its project, its queue,
    and its user within its queue.

    A job in a queue that is exempt from quotas is not counted for its user and its project. The job counts
    for the fourth tenant only if the queue limits each of its users, for example by [queues.NAME]
    max_running_per_user.

    1. `add_queued` is called at the submit of a job, `start` at its placement, `grow` when an elastic job
       gets more nodes.
    2. `release` is called when gang members have ended, `finish` at the end of the attempt, `remove_queued`
       at the cancel of a queued job.
    3. GPUs of a model are counted only while a quota limits this model (`models`). All jobs are counted again
       when the set of these models changes, or when a node with running jobs reports GPUs of other models.

    Invariant: `used` is the sum over all jobs that have not ended. invariants.py counts these jobs again and
    compares. Cost: O(allocations of the job) for an event, independent of the number of jobs.
    """

    def __init__(
        self, window_s: float = WEEK_S, models_of: ModelsOfNode = no_models, models: tuple[str, ...] = ()
    ) -> None:
        self.window_s = window_s
        self.models = models
        """The GPU models on which a quota has a limit."""
        self._models_of = models_of
        self.by_key: dict[TenantKey, TenantUsage] = {}
        self._queues: Mapping[str, QueueRule] = {}
        """The rules of queues with a limit for each user, and of queues that are exempt from quotas."""
        self._of: dict[tuple[str, str, str], tuple[TenantUsage, ...]] = {}
        self._gpu_time_held: dict[int, int] = {}
        """The GPU time of each running job that is counted in `used`, by job id. It is computed as if the job
        ran to its time limit.
        """

    def tenants_of(self, user: str, spec: JobSpec) -> tuple[TenantUsage, ...]:
        """Return the counters of the tenants for which a job counts: its queue; its user and its project,
        unless the queue is exempt from quotas; and its user within the queue, if the queue limits each user.
        """
        key = user, spec.project, spec.queue
        found = self._of.get(key)
        if found is None:
            rule = self._queues.get(spec.queue, NO_QUEUE_RULE)
            keys = [("queue", spec.queue)]
            if EXEMPT_QUOTA not in rule.exempt:
                keys = [("user", user), ("project", spec.project), *keys]
            if rule.limits_users:
                keys.append(queue_user(spec.queue, user))
            found = self._of[key] = tuple(map(self.tenant, keys))
        return found

    def tenant(self, key: TenantKey) -> TenantUsage:
        """Return the counters of a tenant. The counters are created on first use."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = TenantUsage(key, len(self.models))
        return found

    def add_queued(self, job: Job) -> None:
        """Count one more queued job for the job's tenants."""
        for tenant in self.tenants_of(job.user, job.spec):
            tenant.used[QUEUED] += 1

    def remove_queued(self, job: Job) -> None:
        """Stop counting a queued job that leaves the queue without having started."""
        for tenant in self.tenants_of(job.user, job.spec):
            tenant.used[QUEUED] -= 1

    def start(self, job: Job, allocations: Iterable[Allocation]) -> None:
        """Count the job as running with these allocations, and no longer as queued."""
        need = self.held(job, allocations)
        self._gpu_time_held[job.id] = need[GPU_TIME]
        for tenant in self.tenants_of(job.user, job.spec):
            used = tenant.used
            used[CPU] += need[CPU]
            used[MEMORY] += need[MEMORY]
            used[GPU] += need[GPU]
            used[RUNNING] += 1
            used[QUEUED] -= 1
            used[GPU_TIME] += need[GPU_TIME]
            for place in range(FIRST_MODEL, len(need)):
                used[place] += need[place]

    def grow(self, job: Job, allocations: Iterable[Allocation]) -> None:
        """Count additional allocations of a running job. These allocations must already be in
        `job.members`.
        """
        self.follow_limit(job)
        more = self.held(job, allocations)
        for tenant in self.tenants_of(job.user, job.spec):
            used = tenant.used
            used[CPU] += more[CPU]
            used[MEMORY] += more[MEMORY]
            used[GPU] += more[GPU]
            for place in range(FIRST_MODEL, len(more)):
                used[place] += more[place]

    def gpu_time(self, job: Job, limit_s: float | None) -> int:
        """Return the GPU time, in 1/1000 GPU-seconds, that the counters would contain for a running job with
        the time limit `limit_s`: until this limit, but at most for the time window of quotas.
        """
        gpu = sum(hold.milli for member in job.members.values() for hold in member.allocation.gpus)
        return round(gpu * min(NEVER if limit_s is None else limit_s, self.window_s))

    def unused_gpu_time(self, jobs: Iterable[Job], now: float) -> dict[TenantKey, int]:
        """Return the counted GPU time that these running jobs have not used until `now`, by tenant, in 1/1000
        GPU-seconds. The counters contain the GPU time of a job up to its time limit.
        """
        found: dict[TenantKey, int] = {}
        for job in jobs:
            counted = self._gpu_time_held.get(job.id)
            if not counted or job.placed_at is None:
                continue
            milli = sum(hold.milli for member in job.running for hold in member.allocation.gpus)
            unused = max(0, counted - round(milli * max(0.0, now - job.placed_at)))
            for tenant in self.tenants_of(job.user, job.spec):
                found[tenant.key] = found.get(tenant.key, 0) + unused
        return found

    def follow_limit(self, job: Job) -> None:
        """Count the GPU time of a running job again, because its time limit or its members have changed."""
        gpu_time = self.held(job, [member.allocation for member in job.members.values()])[GPU_TIME]
        for tenant in self.tenants_of(job.user, job.spec):
            tenant.used[GPU_TIME] += gpu_time - self._gpu_time_held[job.id]
        self._gpu_time_held[job.id] = gpu_time

    def release(self, job: Job, allocations: Iterable[Allocation], at: float) -> None:
        """Subtract the allocations of ended gang members, and add their GPU time to that of ended
        attempts.
        """
        released = list(allocations)
        held_s = 0.0 if job.placed_at is None else max(0.0, at - job.placed_at)
        spent = sum(round(sum(hold.milli for hold in each.gpus) * held_s) for each in released if each.gpus)
        self._subtract(job, released)
        if spent:
            for tenant in self.tenants_of(job.user, job.spec):
                # Skip the counters of a user within a queue, because no queue limits the GPU time of its
                # users.
                if tenant.key[0] != QUEUE_USER:
                    tenant.spend(spent, at, self.window_s)

    def _subtract(self, job: Job, allocations: Iterable[Allocation]) -> None:
        less = self.held(job, allocations)
        for tenant in self.tenants_of(job.user, job.spec):
            used = tenant.used
            used[CPU] -= less[CPU]
            used[MEMORY] -= less[MEMORY]
            used[GPU] -= less[GPU]
            for place in range(FIRST_MODEL, len(less)):
                used[place] -= less[place]

    def finish(self, job: Job, *, again: bool) -> None:
        """Stop counting the job, because its attempt has ended. If `again` is True, the job returns to the
        queue and counts as queued.
        """
        gpu_time = self._gpu_time_held.pop(job.id, None)
        for tenant in self.tenants_of(job.user, job.spec):
            used = tenant.used
            if gpu_time is None:
                used[QUEUED] -= not again
            else:
                used[RUNNING] -= 1
                used[QUEUED] += again
                used[GPU_TIME] -= gpu_time

    def follow_queues(self, queues: Mapping[str, QueueRule]) -> bool:
        """Use the rules of these queues. Return True if jobs may now count for other tenants than before; the
        caller must then call `recount`.
        """
        special = {
            name: rule for name, rule in queues.items() if rule.limits_users or EXEMPT_QUOTA in rule.exempt
        }
        if special == self._queues:
            return False
        self._queues = special
        self._of.clear()
        return True

    def recount(self, jobs: Iterable[Job], window_s: float, models: tuple[str, ...]) -> None:
        """Count all jobs again, with the time window `window_s` of quotas and the GPU models `models` that
        quotas limit.
        """
        self.window_s, self.models = window_s, models
        self._gpu_time_held.clear()
        for tenant in self.by_key.values():
            tenant.used = [0] * (FIRST_MODEL + len(models))
        for job in jobs:
            self.load_job(job)

    def counted_again(self, jobs: Iterable[Job]) -> UsageCounters:
        """Return new counters with the same settings that count exactly these jobs. They are compared with
        the present counters to find errors.
        """
        fresh = UsageCounters(self.window_s, self._models_of, self.models)
        fresh._queues = self._queues
        for job in jobs:
            fresh.load_job(job)
        return fresh

    def load_job(self, job: Job) -> None:
        """Count a job that was loaded from its database row."""
        if job.state is JobState.QUEUED:
            self.add_queued(job)
        elif not job.state.terminal:
            self.add_queued(job)
            self.start(job, [member.allocation for member in job.members.values()])
            # Do not add the GPU time of ended members here. The database rows of the tenants contain this
            # time and are loaded separately.
            ended = [each.allocation for each in job.members.values() if each.ended_at is not None]
            self._subtract(job, ended)

    def held(self, job: Job, allocations: Iterable[Allocation]) -> Amount:
        """Return the amounts that these allocations of the job add to the counters. If the job has a CPU or
        memory limit above its request, the limit is counted.
        """
        cpu = memory = gpu = 0
        more_cpu, more_memory = job.ask.beyond
        of_models = [0] * len(self.models)
        for allocation in allocations:
            cpu += allocation.cpu_milli + more_cpu
            memory += allocation.memory_mib + more_memory
            for hold in allocation.gpus:
                gpu += hold.milli
            if of_models and allocation.gpus:
                there = self._models_of(allocation.node)
                for hold in allocation.gpus:
                    for place, name in enumerate(self.models):
                        if names_model(name, there.get(hold.uuid, "")):
                            of_models[place] += hold.milli
        gpu_time = round(gpu * min(job.limit, self.window_s))
        return cpu, memory, gpu, 1, 0, gpu_time, *of_models
