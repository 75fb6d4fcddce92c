"""The state of the cluster in memory: jobs, nodes, and the counters and indexes derived from them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from controller.core.cluster.licences import Licences
from controller.core.cluster.nodes import Nodes
from controller.core.estimates.runtime_prediction import PredictionConfig, RuntimePredictor
from controller.core.estimates.service_rates import ServiceRates
from controller.core.fairshare.offqueue_usage import OffQueueUsage
from controller.core.fairshare.share_tree import SharePath, ShareTree
from controller.core.fairshare.usage import FairshareConfig
from controller.core.framework.profiles import Profile, profile_of
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job
from controller.core.model.request import ResourceRequest, request_of
from controller.core.model.rows import UsageRow
from controller.core.model.services import NO_ORDERS, ServiceOrders
from controller.core.model.skipped_numbers import NONE_SKIPPED
from controller.core.queue.order import DynamicOrder, Order, weighs_queues
from controller.core.queue.queue import ALWAYS, ProfileQueues, Queue
from controller.core.quota.budgets import Budgets
from controller.core.quota.quota_config import QuotaConfig
from controller.core.quota.quotas import Quotas
from controller.core.quota.usage_counters import TenantKey, UsageCounters
from controller.core.reservations.reservations import Reservations
from controller.core.state.tokens import Tokens
from controller.core.state.usage_records import usage_rows
from controller.core.state.workloads import Workloads
from wire.cluster.quota import Quota
from wire.job.spec import JobSpec
from wire.names import PRIORITIES, WHOLE_GPU, JobState

NO_SPEC = JobSpec(command=())


def _remove_sorted(releases: list[tuple[float, int]], release: tuple[float, int]) -> None:
    at = bisect_left(releases, release)
    if at < len(releases) and releases[at] == release:
        del releases[at]


def _queue_of(order: Order) -> Queue:
    return Queue(order, order if isinstance(order, DynamicOrder) else None)


@dataclass(frozen=True, slots=True)
class AppliedConfig:
    """The configuration in use: its hash, the time `at` at which it was applied, and the user that applied it
    (`by`).
    """

    digest: str
    at: float
    by: str


class State:
    """The state of the cluster. Only `apply` changes the state. Other functions may fill its caches.

    An ended job stays in memory until `keep_ended` more jobs have ended.
    """

    def __init__(
        self, order: Order, keep_ended: int = 10_000, sharing: FairshareConfig | None = None
    ) -> None:
        self.order = order
        self.shares = ShareTree(sharing or FairshareConfig())
        self.keep_ended = keep_ended
        self.jobs: dict[int, Job] = {}
        self.ended: OrderedDict[int, None] = OrderedDict()
        self.nodes = Nodes()
        self.profiles: tuple[Profile, ...] = ()
        self.queues: dict[str, Queue] = {"": _queue_of(order)}
        """The queues by scheduler profile. The last queue is for jobs that match no other profile."""
        self.queue: Queue | ProfileQueues = self.queues[""]
        """The queues of all scheduler profiles, used like one queue."""
        self.order_of_projects: Order | None = None
        """The order that replaces `order` when a job of a second project is queued; None: `order` stays."""
        self.orders_projects = False
        """True if `order_of_projects` has replaced `order`."""
        self.scavengers_last = False
        """True if jobs with the priority SCAVENGER come after all other jobs (see
        preemption/scavengers.py).
        """
        self.gang_after_s: float | None = None
        """`[scheduler] gang_after_s`: gangs that have waited for more than this many seconds come first;
        None: no gang comes first because of its wait.
        """
        self.longest_runs = PredictionConfig(quantile=1.0)
        """How `assumed_span` predicts the run time of a job without a time limit: the longest of the last run
        times of similar jobs.
        """
        self.releases: list[tuple[float, int]] = []
        """(expected end, job id) of each placed or nominated job, sorted by the expected end, the soonest
        first.
        """
        self._assumed_releases: list[tuple[float, int]] = []
        """The entries of `releases` of jobs without a time limit. The ends of these jobs are only assumed."""
        self.claims: dict[int, None] = {}
        """The nominated jobs (jobs for which resources are kept), in the order of their nominations."""
        self.shortenable: set[int] = set()
        """Waiting jobs with a least time limit (`--time-min`). Jobs that have since started or ended may
        still be included.
        """
        self.elastic: dict[int, None] = {}
        """The running elastic jobs (jobs that may shrink and grow). They may grow when no job waits."""
        self.preempted_at: list[float] = []
        """The times of earlier preemptions, the oldest first. The rate limit of preemption uses
        these times.
        """
        self.next_job = 1
        self.skipped = NONE_SKIPPED
        """The ids and attempt numbers that are not given again after `corral admin accept-loss`."""
        self.forgot = False
        """True if ended jobs were dropped from memory. The idempotency keys of these jobs are then only in
        the store.
        """
        self.keys: dict[tuple[str, str], list[int]] = {}
        """The ids of submitted jobs by (user, idempotency key). A repeated submit with the same key returns
        these jobs.
        """
        self.arrays: dict[int, dict[int, int]] = {}
        """The job id of each array element, by array and index."""
        self.accounts = UsageCounters(models_of=self.models_of_node)
        self.quotas = Quotas(self.accounts, self.nodes.gpu_counts)
        self.budgets = Budgets(self.models_of_node)
        self.limited = bool(self.shares.hard)
        """True if any quota exists, any budget can delay jobs, any share has a hard limit, or `confined` is
        True. The queue then has lanes for each user, project and queue.
        """
        self.confined = False
        """True if at least one job with `--reservation` was put into the queue since the controller started.
        """
        self.offqueue = OffQueueUsage()
        self.host_keys: dict[str, str] = {}
        """Pinned SSH host keys by node."""
        self.hours: tuple[str, ...] = ()
        """The names of the tables [hours.NAME] that are in force."""
        self.licences = Licences()
        self.estimates = RuntimePredictor()
        self.service_rates = ServiceRates()
        self.config: AppliedConfig | None = None
        """The configuration in use. None if an older version stored the state and did not record the
        configuration.
        """
        self.used: list[UsageRow] | None = None
        """The usage records of attempts that ended after the last commit; None if there is no store."""
        self._capacity = (-1, 0.0)
        self.reservations = Reservations()
        self.services: dict[str, ServiceOrders] = {}
        """The orders of operators about services, by the name of the service."""
        self.workloads = Workloads()
        self.tokens = Tokens()
        self.replicas: dict[str, dict[int, None]] = {}
        """The ids of the replicas of each service that have not ended, lowest first."""
        self._asked = (NO_SPEC, "", request_of(NO_SPEC))

    def ask(self, spec: JobSpec, user: str) -> ResourceRequest:
        """Return the resource request of a job spec. The last result is cached, because each submit calls
        this method twice.
        """
        if spec is not self._asked[0] or user != self._asked[1]:
            self._asked = spec, user, request_of(spec, user)
        return self._asked[2]

    def enqueue(self, job: Job) -> None:
        """Put the job into its queue. Do nothing if the job is held or nominated, or if a gate is closed. A
        closed gate is a reason to wait, such as a dependency.
        """
        if self.order_of_projects is not None and self.shares.several_projects:
            self.order_projects(self.order_of_projects)
        if not job.ready:
            return
        if job.spec.reservation and not self.confined:
            self.confined = True
            self._regroup()
        if job.spec.time_min_s is not None:
            self.shortenable.add(job.id)
        queue = self.queue_of(job)
        order, moving = queue.order, queue.moving
        group = () if moving is None else moving.group(job, self.tenant(job))
        if self.limited:
            # While limits exist, put jobs of different users, projects or queues into different lanes, so
            # that the scheduler can skip the whole lane of a tenant that is at a limit. A lane is a list of
            # waiting jobs with equal requests.
            group = (*group, job.user, job.spec.project, job.spec.queue, job.spec.reservation)
        if self.scavengers_last:
            # Put scavengers into lanes of their own, because kept GPUs and operators' reservations do not
            # apply to them: other jobs may stop scavengers at any time.
            group = (*group, job.granted_priority <= PRIORITIES["SCAVENGER"])
        rank = (*self.queue_tier(job), *order.rank(job), job.id)
        waits_since = ALWAYS if job.preemptions else job.ready_at
        queue.add(job.id, job.ask, rank, group, job.latest_start, waits_since)

    def queue_of(self, job: Job) -> Queue:
        queue = self.queues.get(job.profile)
        return next(reversed(self.queues.values())) if queue is None else queue

    def assign_profile(self, job: Job) -> None:
        """Set the scheduler profile of a job from the configuration, unless the job is already placed."""
        if job.placed_at is None:
            job.profile = profile_of(self.profiles, job.spec, job.user) if self.profiles else ""

    def queue_tier(self, job: Job) -> tuple[float, ...]:
        """Return the first part of the job's sort key: whether the job is a scavenger, if scavengers come
        last, and the priority of its queue, if queues have priorities.
        """
        if self.scavengers_last:
            last = (float(job.granted_priority <= PRIORITIES["SCAVENGER"]),)
            return *last, *self._queue_priority(job)
        return self._queue_priority(job)

    def _queue_priority(self, job: Job) -> tuple[float, ...]:
        if not self.quotas.has_queue_priorities or weighs_queues(self.queue_of(job).order):
            return ()
        rule = self.quotas.rules.queues.get(job.spec.queue)
        return (float(-rule.priority),) if rule is not None else (0.0,)

    def limit(self, key: TenantKey, quota: Quota | None) -> None:
        """Set the operator's quota of a tenant, which overrides the quota in the configuration. None removes
        the operator's quota.
        """
        self.quotas.edit(key, quota)
        self._count_models()
        self._regroup()

    def _count_models(self, window_s: float | None = None, *, again: bool = False) -> None:
        """Count the usage of all tenants again if `window_s` (the time window of quotas) has changed, or if
        quotas limit other GPU models than before. With `again` True, always count again.
        """
        window_s, models = window_s or self.accounts.window_s, self.quotas.models
        if again or (window_s, models) != (self.accounts.window_s, self.accounts.models):
            self.accounts.recount(self.jobs.values(), window_s, models)

    def note_gpu_models(self, node: str, before: Mapping[str, str]) -> None:
        """Count the usage of all tenants again if the GPU models of a node with running jobs have changed.
        `before` contains the model that each GPU had before, by GPU UUID.
        """
        if self.nodes.by_name[node].held and before != self.models_of_node(node):
            if self.accounts.models:
                self.accounts.recount(self.jobs.values(), self.accounts.window_s, self.accounts.models)
            self.budgets.recount(self.jobs.values())

    def models_of_node(self, node: str) -> Mapping[str, str]:
        """Return the model of each GPU of a node, by GPU UUID; empty if the node was removed."""
        return self.nodes.gpu_models(node) if node in self.nodes.by_name else {}

    def follow_hours(self, tables: tuple[str, ...]) -> None:
        """Use the quotas and weights of these tables [hours.NAME], which are now in force, and of no other
        tables.
        """
        self.hours = tables
        found = self.quotas.rules.timetable.named(tables)
        self.quotas.follow_hours(found)
        weights = {name: weight for each in reversed(found) for name, weight in each.weights.items()}
        self.shares.set_hour_weights(weights)

    def limit_share(self, name: str, soft: float | None, hard: float | None) -> None:
        """Set the operator's soft and hard limit for the usage of a tenant, which override the limits of the
        configuration. None leaves a limit unchanged.
        """
        self.shares.set_limits(name, soft, hard)
        self._regroup()

    def _regroup(self, *, always: bool = False) -> None:
        """Compute `limited` again. If it changes, or if `always` is True, put all waiting jobs into the queue
        again, because the queue separates tenants only while limits exist.
        """
        was = self.limited
        quotas = not self.quotas.unlimited or self.budgets.affects_jobs
        self.limited = quotas or bool(self.shares.hard) or self.confined
        if self.limited == was and not always:
            return
        for job in [job for lane in self.queue for _, job in lane]:
            self.queue.remove(job)
            self.enqueue(self.jobs[job])

    def put_scavengers_last(self, last: bool) -> None:
        """Set whether jobs with the priority SCAVENGER come after all other waiting jobs."""
        if last != self.scavengers_last:
            self.scavengers_last = last
            self._regroup(always=True)

    def order_projects(self, order: Order | None) -> None:
        """Order the waiting jobs by `order` as soon as jobs of a second project exist. Until then the order
        does not change. Queues of profiles with an order of their own keep it.
        """
        self.order_of_projects = order
        if order is None or not self.shares.several_projects:
            return
        before, self.order, self.order_of_projects, self.orders_projects = self.order, order, None, True
        for queue in self.queues.values():
            if queue.order is before:
                queue.order, queue.moving = order, order if isinstance(order, DynamicOrder) else None
        self._regroup(always=True)

    def tenant(self, job: Job) -> SharePath:
        """Return the path of the job's user in the fair-share tree."""
        return self.shares.path(job.spec.project, job.user)

    @property
    def capacity(self) -> float:
        """The capacity of the cluster in billing units per hour: the charge for all hardware of all nodes."""
        if self._capacity[0] != self.nodes.layout_version:
            charges = (self.shares.sharing.charge_whole(node.facts) for node in self.nodes.rows)
            self._capacity = self.nodes.layout_version, math.fsum(charges)
        return self._capacity[1]

    def set_profiles(self, profiles: tuple[Profile, ...]) -> None:
        """Set the scheduler profiles of the configuration. Must be called before the first decision."""
        if profiles == self.profiles:
            return
        waiting = [job for lane in self.queue for _, job in lane]
        self.profiles = profiles
        self.queues = {each.name: _queue_of(each.policy.order) for each in profiles}
        self.queue = ProfileQueues(self.queues)
        for job in self.jobs.values():
            self.assign_profile(job)
        for number in waiting:
            self.enqueue(self.jobs[number])

    def set_quota_config(self, rules: QuotaConfig) -> None:
        """Set the queues, quotas and licences of the configuration. Must be called before the first
        decision.
        """
        if rules != self.quotas.rules:
            self.licences.total = rules.licences
            other_tenants = self.accounts.follow_queues(rules.queues)
            self.quotas.adopt(rules)
            self.follow_hours(self.hours)
            self._count_models(rules.window_s, again=other_tenants)
            self.budgets.adopt(rules.budgets, self.jobs.values())
            self._regroup(always=True)

    @property
    def orders_by_limits(self) -> bool:
        """True if soft limits, borrowed quota or used-up budgets can put a job behind all other jobs in the
        queue.
        """
        return self.quotas.has_soft_limits or self.budgets.lowers

    @property
    def bars_nodes(self) -> bool:
        """True if an operator's reservation, a timed drain or a quota on a GPU model may keep a job from
        using a node.
        """
        reservations = self.reservations
        return bool(reservations.by_name or reservations.drains or self.quotas.models or self.confined)

    def assumed_span(self, job: Job) -> float:
        """Return the seconds for which an attempt of the job is assumed to hold its nodes, when the scheduler
        checks whether it is in the way of an operator's reservation or of the deadline of another job.

        1. With a time limit: the time limit plus the grace time.
        2. Without a time limit, if `[jobs] default_time_limit_s` is set, and the job is neither a replica nor
           always restarted: the longest of the last run times of similar jobs, or `default_time_limit_s` if
           too few of them have ended, plus the grace time.
        3. In all other cases: NEVER.
        """
        if job.limit < NEVER:
            return job.span
        return (self.estimates.planned(job, self.longest_runs) or NEVER) + job.spec.grace_s

    def pool_units(self, job: Job) -> float:
        """Return the size of the cluster for the check of run time predictions (PredictionGuard): its number
        of GPUs or, if it has none, of CPU cores. Return 0 for a job without GPUs on a cluster with GPUs,
        because the check then counts only jobs with GPUs.
        """
        gpus = self.nodes.gpu_counts.total
        if gpus:
            return float(gpus) if job.spec.gpus else 0.0
        return float(self.nodes.columns.cpu_total.sum()) / WHOLE_GPU

    def add_release(self, job: Job) -> None:
        """Add the expected end of a placed or nominated job to the sorted list `releases`."""
        release = (job.expected_end, job.id)
        insort(self.releases, release)
        if job.limit == NEVER:
            insort(self._assumed_releases, release)

    def remove_release(self, job: Job) -> None:
        """Remove the job from the sorted list `releases`. Call this before the job's expected end changes,
        because the list is sorted by expected end.
        """
        release = (job.expected_end, job.id)
        _remove_sorted(self.releases, release)
        if self._assumed_releases:
            _remove_sorted(self._assumed_releases, release)

    def assumes_ends(self, by: float) -> bool:
        """Return whether `releases` has an end, at or before the time `by`, of a job without a time limit and
        without a stop order. Such an end is only assumed.
        """
        ending = takewhile(lambda each: each[0] <= by, self._assumed_releases)
        return any(self.jobs[job].stop_by is None for _, job in ending)

    def released_by(self, job: Job) -> list[Allocation]:
        """Return the allocations that other jobs can use after the end of this job. Allocations that are kept
        for nominated jobs are left out. For a nominated job that waits, the result is the allocations that
        are kept for it.
        """
        if job.claim and not job.unended:
            return list(job.claim)
        held = [member.allocation for member in job.members.values() if member.ended_at is None]
        if not self.claims:
            return held
        return [each for each in held if job.id not in self.nodes.by_name[each.node].leaving]

    def note_elastic(self, job: Job) -> None:
        """Update the index of running elastic jobs (`elastic`) after the state of the job has changed."""
        if job.spec.gang.elastic and job.state is JobState.RUNNING:
            self.elastic[job.id] = None
        elif self.elastic:
            self.elastic.pop(job.id, None)

    def index(self, job: Job) -> None:
        """Add a job to the indexes by id, by idempotency key and by array."""
        self.assign_profile(job)
        self.jobs[job.id] = job
        self.next_job = max(self.next_job, job.id + 1)
        if job.key:
            insort(
                self.keys.setdefault((job.user, job.key), []),
                job.id,
                # Insert the job at its sorted place: rows of ended jobs are loaded last and may have lower
                # ids.
            )
        if job.array is not None and job.index is not None:
            self.arrays.setdefault(job.array, {})[job.index] = job.id
        if job.replica is not None and not job.state.terminal:
            self.replicas.setdefault(job.replica.service, {})[job.id] = None

    def orders_of(self, service: str) -> ServiceOrders:
        """Return the operators' orders for a service."""
        return self.services.get(service, NO_ORDERS)

    def drop_replica(self, job: Job) -> None:
        """Remove an ended job from the replicas of its service."""
        assert job.replica is not None
        found = self.replicas[job.replica.service]
        del found[job.id]
        if not found:
            del self.replicas[job.replica.service]

    def account(self, job: Job, now: float) -> None:
        """Make the usage records of an ended attempt. The next commit writes these records to the store."""
        if self.used is not None:
            self.used += usage_rows(job, now)

    def note_ended(self, job: Job) -> None:
        """Record that the job has ended. The job stays in memory until forget_old() drops the job."""
        self.ended[job.id] = None

    def forget_old(self) -> None:
        """Drop the oldest ended jobs from memory until `keep_ended` ended jobs are left. Call this after the
        database rows of these jobs were made.
        """
        while len(self.ended) > self.keep_ended:
            oldest, _ = self.ended.popitem(last=False)
            self._forget(self.jobs.pop(oldest))
            self.forgot = True

    def _forget(self, job: Job) -> None:
        if job.key:
            self.keys.pop((job.user, job.key), None)
        if job.array is not None and job.index is not None:
            elements = self.arrays.get(job.array, {})
            elements.pop(job.index, None)
            if not elements:
                self.arrays.pop(job.array, None)

    def find(self, label: str) -> Job | None:
        """Return the job with this display id, such as `17` or `12_3`. Return None if the job is not in
        memory.
        """
        head, bar, tail = label.partition("_")
        if not (head.isascii() and head.isdigit() and len(head) < 19):
            return None
        if not bar:
            return self.jobs.get(int(head))
        if not (tail.isascii() and tail.isdigit() and len(tail) < 19):
            return None
        found = self.arrays.get(int(head), {}).get(int(tail))
        return None if found is None else self.jobs.get(found)

    def live(self) -> Iterable[Job]:
        """Yield the jobs that have not ended."""
        return (job for job in self.jobs.values() if not job.state.terminal)
