"""The whole truth in memory: jobs, nodes, and the queue derived from them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable

from controller.core.accounts import Accounts, Key
from controller.core.columns import Bools
from controller.core.estimates import Estimates
from controller.core.events import Allocation
from controller.core.jobs import Job
from controller.core.licences import Licences
from controller.core.needs import needs_of
from controller.core.nodes import Nodes
from controller.core.offqueue import OffQueue
from controller.core.plugin import Order
from controller.core.profiles import Profile, profile_of
from controller.core.queue import Queue
from controller.core.queues import Queues
from controller.core.quotas import Over, Quotas, Rules
from controller.core.requests import Ask, ask_of
from controller.core.reservations import Reservations
from controller.core.shares import Path, Shares, Sharing
from controller.core.standing import Moving, weighs_queues
from wire.quota import Quota
from wire.spec import JobSpec
from wire.words import JobState

NO_SPEC = JobSpec(command=())


def _queue_of(order: Order) -> Queue:
    return Queue(order, order if isinstance(order, Moving) else None)


class State:
    """Mutated by apply() alone. Ended jobs stay until `keep_ended` newer ones have ended."""

    def __init__(self, order: Order, keep_ended: int = 10_000, sharing: Sharing | None = None) -> None:
        self.order = order
        self.shares = Shares(sharing or Sharing())
        self.keep_ended = keep_ended
        self.jobs: dict[int, Job] = {}
        self.ended: OrderedDict[int, None] = OrderedDict()
        self.nodes = Nodes()
        self.profiles: tuple[Profile, ...] = ()
        self.queues: dict[str, Queue] = {"": _queue_of(order)}
        """Who waits, by profile; the last is for whoever has none of these."""
        self.queue: Queue | Queues = self.queues[""]
        """All of them."""
        self.releases: list[tuple[float, int]] = []
        """(expected end, job) of every job that holds something, soonest first."""
        self.claims: dict[int, None] = {}
        """Waiting jobs for which room is kept, in the order of their claims."""
        self.elastic: dict[int, None] = {}
        """Elastic jobs that run: what a pass looks at when nobody waits."""
        self.preempted_at: list[float] = []
        """When jobs were told to make room, oldest first: what a rate is counted by."""
        self.next_job = 1
        self.keys: dict[tuple[str, str], list[int]] = {}
        """Jobs by (user, idempotency key)."""
        self.arrays: dict[int, dict[int, int]] = {}
        """Jobs by (array, index)."""
        self.accounts = Accounts()
        self.quotas = Quotas(self.accounts)
        self.offqueue = OffQueue()
        self.host_keys: dict[str, str] = {}
        """What is pinned, by node."""
        self.licences = Licences()
        self.estimates = Estimates()
        self._capacity = (-1, 0.0)
        self.reservations = Reservations()
        self._asked = (NO_SPEC, ask_of(NO_SPEC))

    def ask(self, spec: JobSpec) -> Ask:
        """The class of a spec; the last is remembered: it is asked for when checked and when queued."""
        if spec is not self._asked[0]:
            self._asked = spec, ask_of(spec)
        return self._asked[1]

    def enqueue(self, job: Job) -> None:
        """A queued, unheld job waits in the place its rank gives it, unless room is kept for it."""
        if not job.ready:
            return
        queue = self.queue_of(job)
        order, moving = queue.order, queue.moving
        group = () if moving is None else moving.group(job, self.tenant(job))
        if self.limited:  # whoever is at a limit is passed over as a whole
            group = (*group, job.user, job.spec.project, job.spec.queue)
        queue.add(job.id, job.ask, (*self.tier(job), *order.rank(job), job.id), group, job.latest_start)

    def queue_of(self, job: Job) -> Queue:
        """The queue in which the job waits, or would."""
        queue = self.queues.get(job.profile)
        return next(reversed(self.queues.values())) if queue is None else queue

    def sort(self, job: Job) -> None:
        """Give a job that holds nothing the profile that the configuration gives it."""
        if job.placed_at is None:
            job.profile = profile_of(self.profiles, job.spec, job.user) if self.profiles else ""

    def tier(self, job: Job) -> tuple[float, ...]:
        """What the job's queue puts before every order; nothing where queues are alike."""
        if not self.quotas.tiered or weighs_queues(self.queue_of(job).order):
            return ()
        rule = self.quotas.rules.queues.get(job.spec.queue)
        return (float(-rule.priority),) if rule is not None else (0.0,)

    def beyond(self, job: Job, now: float) -> Over | None:
        """The soft limit that the job passes, or the hard one that it passes by borrowing."""
        part, nodes = job.ask.part, job.ask.nodes or 1
        gpu_milli = needs_of(part, self.nodes.columns).most * nodes
        need = part.cpu_milli * nodes, part.memory_mib * nodes, gpu_milli, 1, 0, 0
        return self.quotas.over_soft(job.user, job.spec, need, now)

    @property
    def limited(self) -> bool:
        """Is there anybody who may not hold, or have used, whatever there is?"""
        return not self.quotas.silent or bool(self.shares.hard)

    def limit(self, key: Key, quota: Quota | None) -> None:
        """Lay a quota over what the configuration states, or take it back."""
        was = self.limited
        self.quotas.edit(key, quota)
        if self.limited != was:
            self._regroup()

    def limit_share(self, name: str, soft: float | None, hard: float | None) -> None:
        """Lay limits of a share over what the configuration states."""
        was = self.limited
        self.shares.limit(name, soft, hard)
        if self.limited != was:
            self._regroup()

    def _regroup(self) -> None:
        """Who waits in one lane has changed."""
        for job in [job for lane in self.queue for _, job in lane]:
            self.queue.remove(job)
            self.enqueue(self.jobs[job])

    def tenant(self, job: Job) -> Path:
        """Whose job it is, in the tree of shares."""
        return self.shares.path(job.spec.project, job.user)

    @property
    def capacity(self) -> float:
        """What all nodes together can give, in billing units per hour."""
        if self._capacity[0] != self.nodes.layout:
            charges = (self.shares.sharing.charge_whole(node.facts) for node in self.nodes.rows)
            self._capacity = self.nodes.layout, math.fsum(charges)
        return self._capacity[1]

    def divide(self, profiles: tuple[Profile, ...]) -> None:
        """The profiles that there are from now on; called before anything is decided."""
        if profiles == self.profiles:
            return
        waiting = [job for lane in self.queue for _, job in lane]
        self.profiles = profiles
        self.queues = {each.name: _queue_of(each.policy.order) for each in profiles}
        self.queue = Queues(self.queues)
        for job in self.jobs.values():
            self.sort(job)
        for number in waiting:
            self.enqueue(self.jobs[number])

    def adopt(self, rules: Rules) -> None:
        """The rules that hold from now on; called before anything is decided."""
        if rules != self.quotas.rules:
            self.licences.total = rules.licences
            self.accounts.count(self.jobs.values(), rules.window_s)
            self.quotas.adopt(rules)
            self._regroup()

    def barred(self, job: Job, now: float, later_s: float = 0.0) -> Bools | None:
        """Nodes on which the job, started within so long, would meet a reservation that does not admit it."""
        if not self.reservations:
            return None
        return self.reservations.barred(self.nodes, job.user, job.spec.project, now, job.span + later_s)

    def expect(self, job: Job) -> None:
        """A placed job gives its room back at its expected end at the latest."""
        insort(self.releases, (job.expected_end, job.id))

    def unexpect(self, job: Job) -> None:
        """The job holds nothing any more."""
        release = (job.expected_end, job.id)
        at = bisect_left(self.releases, release)
        if at < len(self.releases) and self.releases[at] == release:
            del self.releases[at]

    def returns(self, job: Job) -> list[Allocation]:
        """The room that others may count on once this job has ended."""
        if job.claim and not job.unended:
            return list(job.claim)
        held = [member.allocation for member in job.members.values() if member.ended_at is None]
        if not self.claims:
            return held
        return [each for each in held if job.id not in self.nodes.by_name[each.node].leaving]

    def note_elastic(self, job: Job) -> None:
        """The job runs, or does not run any more."""
        if job.spec.gang.elastic and job.state is JobState.RUNNING:
            self.elastic[job.id] = None
        else:
            self.elastic.pop(job.id, None)

    def index(self, job: Job) -> None:
        """Make a job findable."""
        self.sort(job)
        self.jobs[job.id] = job
        self.next_job = max(self.next_job, job.id + 1)
        if job.key:
            insort(self.keys.setdefault((job.user, job.key), []), job.id)  # out of rows ended ones come last
        if job.array is not None and job.index is not None:
            self.arrays.setdefault(job.array, {})[job.index] = job.id

    def retire(self, job: Job) -> None:
        """The job has ended; it stays in memory until forget_old() finds it too old."""
        self.ended[job.id] = None

    def forget_old(self) -> None:
        """Drop the longest-ended jobs from memory; called once their rows are made."""
        while len(self.ended) > self.keep_ended:
            oldest, _ = self.ended.popitem(last=False)
            self._forget(self.jobs.pop(oldest))

    def _forget(self, job: Job) -> None:
        if job.key:
            self.keys.pop((job.user, job.key), None)
        if job.array is not None and job.index is not None:
            elements = self.arrays.get(job.array, {})
            elements.pop(job.index, None)
            if not elements:
                self.arrays.pop(job.array, None)

    def find(self, label: str) -> Job | None:
        """The job people call `17` or `12_3`."""
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
        """Jobs that have not ended."""
        return (job for job in self.jobs.values() if not job.state.terminal)
