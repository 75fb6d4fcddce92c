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

    def over(self, job: Job, now: float, nodes: int | None = None) -> Over | Stopped | None:
        """The hard limit that the job would break if it started now, on all its nodes or on so many."""
        stopped = self._stopped(job, now)
        if stopped is not None or self._state.quotas.silent:
            return stopped
        return self._over(job, now, self._claimed(job), nodes)

    def nodes_within(self, job: Job, now: float) -> int:
        """On how many nodes a gang that may start in part would break no hard limit now; 0: on none."""
        if self._stopped(job, now) is not None:
            return 0
        return self._within(job, now, {} if self._state.quotas.silent else self._claimed(job))

    def _within(self, job: Job, now: float, kept: Mapping[Key, list[int]]) -> int:
        shape = self._placer.shape(job.ask)
        least = job.ask.least
        if shape is None or least is None:
            return 0
        counts = range(shape.nodes, least - 1, -1)
        return next((count for count in counts if self._over(job, now, kept, count) is None), 0)

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

    def those_who_may(self, entries: Iterable[Entry], now: float) -> Iterator[tuple[int, int | None]]:
        """Out of all that wait, in order, those who may start beside those before them, on how many nodes."""
        if self.silent:
            yield from ((job, None) for _, job in entries)
            return
        kept = self._claimed(None)
        for _, number in entries:
            job = self._state.jobs[number]
            if self._stopped(job, now) is not None:
                continue
            if self._over(job, now, kept) is None:
                self._keep(kept, job)
                yield number, None
            elif most := self._within(job, now, kept):
                self._keep(kept, job, most)
                yield number, most

    def _over(
        self, job: Job, now: float, kept: Mapping[Key, list[int]], nodes: int | None = None
    ) -> Over | None:
        accounts = self._state.accounts
        found = self._state.quotas.over_hard(job.user, job.spec, self._need(job, nodes), now, kept)
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

    def _need(self, job: Job, nodes: int | None = None) -> Amount:
        """What it counts for once it runs."""
        return need_for(self._placer, job.ask, job.spec.time_limit_s, self._state.accounts.window_s, nodes)

    def _claimed(self, job: Job | None) -> dict[Key, list[int]]:
        """What room is kept for already, by tenant; for others than this job."""
        kept: dict[Key, list[int]] = {}
        for each in self._state.claims:
            # Who is being moved is counted with what it still holds.
            if (job is None or each != job.id) and not self._state.jobs[each].unended:
                self._keep(kept, self._state.jobs[each])
        return kept

    def _keep(self, kept: dict[Key, list[int]], job: Job, nodes: int | None = None) -> None:
        need = self._need(job, nodes)
        for account in self._state.accounts.of(job.user, job.spec):
            before = kept.get(account.key)
            kept[account.key] = (
                [*need] if before is None else [one + more for one, more in zip(before, need, strict=True)]
            )
