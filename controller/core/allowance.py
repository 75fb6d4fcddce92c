"""What quotas say about starting a job at this moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.core.accounts import GPU_TIME, Amount, Key, held
from controller.core.admission import need_for
from controller.core.events import Allocation
from controller.core.jobs import NEVER, Job
from controller.core.placement import Placer
from controller.core.queue import Entry
from controller.core.quotas import Over
from controller.core.shares import Stopped
from controller.core.state import State


class Allowance:
    """Asked before each start. Where nobody is limited the answer costs nothing."""

    def __init__(self, state: State, placer: Placer) -> None:
        self._state = state
        self._placer = placer
        self.again_at = NEVER
        """When somebody who was over a limit on what was used may no longer be, if only time passes."""

    @property
    def silent(self) -> bool:
        """Nobody is limited by anything."""
        return not self._state.limited

    def over(self, job: Job, now: float) -> Over | Stopped | None:
        """The hard limit that the job would break if it started now; None if none."""
        stopped = self._stopped(job, now)
        if stopped is not None or self._state.quotas.silent:
            return stopped
        return self._over(job, now, self._claimed(job))

    def _stopped(self, job: Job, now: float) -> Stopped | None:
        """The limit of its share that nothing may start at."""
        state = self._state
        stopped = state.shares.stopped(state.tenant(job), now) if state.shares.hard else None
        if stopped is not None:
            self.again_at = min(self.again_at, stopped.until)
        return stopped

    def may_grow(self, job: Job, allocations: Iterable[Allocation], now: float) -> bool:
        """Would a job that runs stay within the limits if it held these as well?"""
        if self._stopped(job, now) is not None:
            return False
        if self._state.quotas.silent:
            return True
        cpu, memory, gpu, _, _, time = held(allocations, job.limit, self._state.accounts.window_s)
        need = cpu, memory, gpu, 0, 0, time
        return self._state.quotas.over_hard(job.user, job.spec, need, now, self._claimed(None)) is None

    def those_who_may(self, entries: Iterable[Entry], now: float) -> Iterator[Entry]:
        """Out of all that wait, in order, those who may start beside those before them."""
        if self.silent:
            yield from entries
            return
        kept = self._claimed(None)
        for entry in entries:
            job = self._state.jobs[entry[1]]
            if self._stopped(job, now) is None and self._over(job, now, kept) is None:
                self._keep(kept, job)
                yield entry

    def _over(self, job: Job, now: float, kept: Mapping[Key, list[int]]) -> Over | None:
        accounts = self._state.accounts
        found = self._state.quotas.over_hard(job.user, job.spec, self._need(job), now, kept)
        if found is not None and found.place == GPU_TIME:
            lessens_at = accounts.account(found.key).lessens_at(now, accounts.window_s)
            self.again_at = min(self.again_at, lessens_at)
        return found

    def borrows(self, job: Job, now: float) -> bool:
        """Would it start with what other projects leave unused?"""
        quotas = self._state.quotas
        return not quotas.silent and quotas.borrows(job.user, job.spec, self._need(job), now)

    def due(self, now: float) -> bool:
        """Has time alone let somebody in? Told once."""
        due = self.again_at <= now
        if due:
            self.again_at = NEVER
        return due

    def _need(self, job: Job) -> Amount:
        """What it counts for once it runs."""
        return need_for(self._placer, job.ask, job.spec.time_limit_s, self._state.accounts.window_s)

    def _claimed(self, job: Job | None) -> dict[Key, list[int]]:
        """What room is kept for already, by tenant; for others than this job."""
        kept: dict[Key, list[int]] = {}
        for each in self._state.claims:
            if job is None or each != job.id:
                self._keep(kept, self._state.jobs[each])
        return kept

    def _keep(self, kept: dict[Key, list[int]], job: Job) -> None:
        need = self._need(job)
        for account in self._state.accounts.of(job.user, job.spec):
            before = kept.get(account.key)
            kept[account.key] = (
                [*need] if before is None else [one + more for one, more in zip(before, need, strict=True)]
            )
