"""What each user, project and queue holds, kept in step by apply: nothing is ever counted anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.core.events import Allocation
from controller.core.jobs import NEVER, Job
from wire.spec import JobSpec
from wire.words import JobState

CPU, MEMORY, GPU, RUNNING, QUEUED, GPU_TIME = range(6)
"""Places in an amount: CPU-milli, MiB, GPU-milli, jobs, jobs, GPU-milli-seconds."""
Amount = tuple[int, int, int, int, int, int]

HOUR_S = 3_600
WEEK_S = 7 * 24 * HOUR_S

Key = tuple[str, str]
"""(scope, name) of a tenant: ("user", "ada")."""


class Account:
    """One tenant. `used[GPU_TIME]` is what its running attempts may yet use, apart from what it has spent."""

    __slots__ = ("_spent", "key", "spent", "used")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.used = [0, 0, 0, 0, 0, 0]
        self.spent: dict[int, int] = {}
        """GPU-milli-seconds of attempts that ended within an hour, by hour, oldest first."""
        self._spent = 0

    def amount(self, place: int, now: float, window_s: float) -> int:
        """How much of one kind is in use; of GPU time also what was spent within the window."""
        if place != GPU_TIME or not self._spent:
            return self.used[place]
        return self.used[place] + self._spent - sum(self._over(now, window_s))

    def lessens_at(self, now: float, window_s: float) -> float:
        """When the next hour of what was spent leaves the window; never if nothing was."""
        leaving = ((hour + 1) * HOUR_S + window_s for hour in self.spent)
        return next((moment for moment in leaving if moment > now), NEVER)

    def spend(self, milli_s: int, at: float, window_s: float) -> None:
        """An attempt is over."""
        for _ in [*self._over(at, window_s)]:
            self._spent -= self.spent.pop(next(iter(self.spent)))
        hour = int(at // HOUR_S)
        self.spent[hour] = self.spent.get(hour, 0) + milli_s
        self._spent += milli_s

    def remember(self, spent: Mapping[int, int]) -> None:
        """What a row says."""
        self.spent = dict(sorted(spent.items()))
        self._spent = sum(spent.values())

    def _over(self, now: float, window_s: float) -> Iterator[int]:
        """What was spent before the window; it leaves hour by hour."""
        first = int((now - window_s) // HOUR_S)
        for hour, milli_s in self.spent.items():
            if hour >= first:
                return
            yield milli_s


class Accounts:
    """All of them. A job counts towards three: its user's, its project's and its queue's."""

    def __init__(self, window_s: float = WEEK_S) -> None:
        self.window_s = window_s
        self.by_key: dict[Key, Account] = {}
        self._of: dict[tuple[str, str, str], tuple[Account, Account, Account]] = {}
        self._promised: dict[int, int] = {}
        """By running job: the GPU time counted for it in advance."""

    def of(self, user: str, spec: JobSpec) -> tuple[Account, Account, Account]:
        """The accounts of a job."""
        key = user, spec.project, spec.queue
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = (
                self.account(("user", user)),
                self.account(("project", spec.project)),
                self.account(("queue", spec.queue)),
            )
        return found

    def account(self, key: Key) -> Account:
        """The account of a tenant, opened when first asked for."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = Account(key)
        return found

    def wait(self, job: Job) -> None:
        """A job is queued."""
        for account in self.of(job.user, job.spec):
            account.used[QUEUED] += 1

    def leave(self, job: Job) -> None:
        """A job is queued no longer, and holds nothing."""
        for account in self.of(job.user, job.spec):
            account.used[QUEUED] -= 1

    def place(self, job: Job, allocations: Iterable[Allocation]) -> None:
        """A job that waited holds these now."""
        need = held(allocations, job.limit, self.window_s)
        self._promised[job.id] = need[GPU_TIME]
        for account in self.of(job.user, job.spec):
            used = account.used
            used[CPU] += need[CPU]
            used[MEMORY] += need[MEMORY]
            used[GPU] += need[GPU]
            used[RUNNING] += 1
            used[QUEUED] -= 1
            used[GPU_TIME] += need[GPU_TIME]

    def grow(self, job: Job, allocations: Iterable[Allocation]) -> None:
        """A job that runs holds these as well; its members have them already."""
        every = [member.allocation for member in job.members.values()]
        promised = held(every, job.limit, self.window_s)[GPU_TIME]
        more = held(allocations, job.limit, self.window_s)
        for account in self.of(job.user, job.spec):
            used = account.used
            used[CPU] += more[CPU]
            used[MEMORY] += more[MEMORY]
            used[GPU] += more[GPU]
            used[GPU_TIME] += promised - self._promised[job.id]
        self._promised[job.id] = promised

    def free(self, job: Job, allocations: Iterable[Allocation], at: float) -> None:
        """Members of an attempt are over."""
        cpu_milli = memory_mib = gpu_milli = spent = 0
        held_s = 0.0 if job.placed_at is None else max(0.0, at - job.placed_at)
        for allocation in allocations:
            cpu_milli += allocation.cpu_milli
            memory_mib += allocation.memory_mib
            if allocation.gpus:
                milli = sum(hold.milli for hold in allocation.gpus)
                gpu_milli += milli
                spent += round(milli * held_s)
        for account in self.of(job.user, job.spec):
            used = account.used
            used[CPU] -= cpu_milli
            used[MEMORY] -= memory_mib
            used[GPU] -= gpu_milli
            if spent:
                account.spend(spent, at, self.window_s)

    def finish(self, job: Job, *, again: bool) -> None:
        """All of an attempt is over; the job waits again, or it has ended."""
        promised = self._promised.pop(job.id, None)
        for account in self.of(job.user, job.spec):
            used = account.used
            if promised is None:
                used[QUEUED] -= not again
            else:
                used[RUNNING] -= 1
                used[QUEUED] += again
                used[GPU_TIME] -= promised

    def count(self, jobs: Iterable[Job], window_s: float) -> None:
        """Begin anew with another window: GPU time that is yet to be used depends on it."""
        if window_s != self.window_s:
            self.window_s = window_s
            self._promised.clear()
            for account in self.by_key.values():
                account.used = [0, 0, 0, 0, 0, 0]
            for job in jobs:
                self.resume(job)

    def resume(self, job: Job) -> None:
        """A job out of its row."""
        if job.state is JobState.QUEUED:
            self.wait(job)
        elif not job.state.terminal:
            self.wait(job)
            self.place(job, [member.allocation for member in job.members.values()])
            for member in job.members.values():
                if member.ended_at is not None:  # spent already, as its tenants' rows say
                    allocation = member.allocation
                    for account in self.of(job.user, job.spec):
                        account.used[CPU] -= allocation.cpu_milli
                        account.used[MEMORY] -= allocation.memory_mib
                        account.used[GPU] -= sum(hold.milli for hold in allocation.gpus)


def held(allocations: Iterable[Allocation], limit_s: float, window_s: float) -> Amount:
    """What a job that gets these counts for."""
    cpu = memory = gpu = 0
    for allocation in allocations:
        cpu += allocation.cpu_milli
        memory += allocation.memory_mib
        for hold in allocation.gpus:
            gpu += hold.milli
    return cpu, memory, gpu, 1, 0, round(gpu * min(limit_s, window_s))
