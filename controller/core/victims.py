"""Who could be made to leave, per node: kept in step with the nodes, looked through for all at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable

import numpy as np

from controller.core.columns import ABSENT, ALL, Bools, Floats, Ints, Rows
from controller.core.dues import Dues, Settling
from controller.core.jobs import NEVER, Job
from controller.core.needs import needs_of
from controller.core.placement import Placer, concerned, kept
from controller.core.plugin import Guards, Strategy
from controller.core.requests import Part
from controller.core.state import State
from wire.words import WHOLE_GPU

NOBODY = 0
GuardsOf = Callable[[Job], Guards]
"""What protects a running job: those of its own profile, whoever has it ended."""
_FIRST_WIDTH = 8
_TOO_MUCH = 1 << 40


class Victims:
    """A matrix with a row per node: the jobs that a strategy may end there, those with least to lose first.

    What a GPU's work loses grows with time alike for all, so the order within a row stays as time passes.
    A row is written anew only when its node changes; `log` names the rows that did.
    """

    def __init__(self, state: State, strategy: Strategy, guards_of: GuardsOf) -> None:
        self.log: list[int] = []
        self.epoch = 0
        """Grows when all rows were written anew."""
        self._state = state
        self._strategy = strategy
        self._guards_of = guards_of
        self._seen = (-1, 0)
        self._ripening: list[tuple[float, int]] = []
        self._settling = strategy if isinstance(strategy, Settling) else None
        self.groups: dict[Hashable, int] = {}
        """Groups of jobs that owe alike, by number."""
        self._resize(0, _FIRST_WIDTH)

    def _resize(self, height: int, width: int) -> None:
        self.job: Ints = np.full((height, width), NOBODY, dtype=np.int64)
        self.gpu: Ints = np.zeros((height, width), dtype=np.int64)
        self.weight: Ints = np.zeros((height, width), dtype=np.int64)
        """GPU-milli over all its nodes: what is lost wherever it is ended."""
        self.cpu: Ints = np.zeros((height, width), dtype=np.int64)
        self.memory: Ints = np.zeros((height, width), dtype=np.int64)
        self.since: Floats = np.zeros((height, width))
        self.standing: Floats = np.zeros((height, width))
        self.group: Ints = np.zeros((height, width), dtype=np.int64)
        self.ready: Floats = np.full((height, width), NEVER)

    def sync(self, stirred: Iterable[int], now: float) -> None:
        """Bring the rows up to the nodes; `stirred` are jobs that lose more or less than before."""
        nodes = self._state.nodes
        layout, changes = self._seen
        rows = nodes.changed_since(changes) if layout == nodes.layout else None
        if rows is None or len(self.log) > 8 * len(nodes) + 1_024:
            self._begin(now)
        else:
            jobs, by_name = self._state.jobs, nodes.by_name
            moved = {by_name[name].row for job in stirred if job in jobs for name in jobs[job].members}
            for row in sorted(moved.union(rows)):
                self._fill(row, now)
                self.log.append(row)
            while self._ripening and self._ripening[0][0] <= now:
                self.log.append(heapq.heappop(self._ripening)[1])
        self._seen = nodes.layout, nodes.changes

    @property
    def ripe_at(self) -> float:
        """When somebody next may be ended who may not be now."""
        return self._ripening[0][0] if self._ripening else NEVER

    def _begin(self, now: float) -> None:
        rows = self._state.nodes.rows
        self._resize(len(rows), max((len(node.held) for node in rows), default=0) + 1)
        self._ripening.clear()
        self.log.clear()
        self.epoch += 1
        for row in range(len(rows)):
            self._fill(row, now)

    def _fill(self, row: int, now: float) -> None:
        jobs, node = self._state.jobs, self._state.nodes.rows[row]
        found = sorted(
            (-jobs[job].unsaved_since, job) for job in node.held if self._may_leave(jobs[job], node.name)
        )
        if len(found) > self.job.shape[1]:
            self._widen(2 * len(found))
        self.job[row] = NOBODY
        for at, (_, number) in enumerate(found):
            job, allocation = jobs[number], node.held[number]
            ready = ripe_at(job, self._guards_of(job))
            self.job[row, at] = number
            self.gpu[row, at] = sum(gpu.milli for gpu in allocation.gpus)
            self.weight[row, at] = self.gpu[row, at] if job.spare(node.name) else job.gpu_milli
            self.cpu[row, at] = allocation.cpu_milli
            self.memory[row, at] = allocation.memory_mib
            self.since[row, at] = job.unsaved_since
            self.standing[row, at] = self._strategy.standing(job)
            if self._settling is not None:
                group = self._settling.group(job, self._state)
                self.group[row, at] = self.groups.setdefault(group, len(self.groups))
            self.ready[row, at] = ready
            if now < ready < NEVER:
                heapq.heappush(self._ripening, (ready, row))

    def _widen(self, width: int) -> None:
        for name in ("job", "gpu", "weight", "cpu", "memory", "since", "standing", "group", "ready"):
            old = getattr(self, name)
            setattr(self, name, np.pad(old, ((0, 0), (0, width - old.shape[1]))))

    def _may_leave(self, job: Job, node: str) -> bool:
        return not job.members[node].leaving and may_leave(job, self._guards_of(job))


def may_leave(job: Job, guards: Guards) -> bool:
    """May the job be ended before its time, if it has run long enough?"""
    return job.stopping is None and job.spec.preemptible and len(job.preemptions) < guards.max_per_job


def ripe_at(job: Job, guards: Guards) -> float:
    """When it has run long enough since its start, and since it was ended last."""
    began = job.started_at if job.started_at is not None else job.placed_at
    if began is None:
        return NEVER
    ready = began + max(guards.min_runtime_s, job.spec.min_runtime_s)
    if job.preemptions:
        ready = max(ready, job.preemptions[-1].at + guards.cooldown_s)
    return ready


class Offers:
    """What the nodes could give to one part if those below a standing left: by row, brought up to date.

    No set of victims of a node loses less than told here. A set either holds one that alone gives all the
    GPUs that are missing, and loses as much as that one; or it loses no less than these GPUs taken from the
    others, those with least to lose first, the last one in part. Both grow evenly as time passes.
    """

    def __init__(
        self, part: Part, reach: float, victims: Victims, placer: Placer, dues: Dues | None = None
    ) -> None:
        self._part = part
        self._reach = reach
        self._owing = (
            None if dues is None else np.array([dues.owes(group) for group in victims.groups] or [False])
        )
        """By group: must it give something back?"""
        self._victims = victims
        self._placer = placer
        self._filters = concerned(part, placer.pipeline)
        self._seen = (-1, 0)
        self._resize(0)

    def _resize(self, height: int) -> None:
        self._one: Floats = np.zeros(height)
        """What the cheapest of those who alone are enough loses at `_at`, and its least growth."""
        self._one_grows: Floats = np.zeros(height)
        self._at: Floats = np.zeros(height)
        self._many: Floats = np.zeros(height)
        """What the others lose is `_many_grows * now - _many`."""
        self._many_grows: Floats = np.zeros(height)
        self._possible: Bools = np.zeros(height, dtype=np.bool_)
        self._fitting: Bools = np.zeros(height, dtype=np.bool_)

    def losses(self, now: float) -> Floats:
        """The least GPU-milli-seconds a node would lose, infinite where no set of victims is enough."""
        self._update(now)
        one = self._one + self._one_grows * (now - self._at)
        many = self._many_grows * now - self._many
        return np.where(self._possible, np.maximum(0.0, np.minimum(one, many)), np.inf)

    def rule_out(self, row: int) -> None:
        """A closer look has shown that it cannot be done there, as things are."""
        self._possible[row] = False

    def willing(self, row: int, now: float) -> list[int]:
        """The jobs of a node that may be ended for this, those with least to lose first."""
        victims = self._victims
        return [int(job) for job in victims.job[row][self._willing(np.array([row]), now)[0]]]

    def _willing(self, rows: Rows, now: float) -> Bools:
        victims = self._victims
        willing: Bools = (
            (victims.job[rows] != NOBODY)
            & (victims.standing[rows] <= self._reach)
            & (victims.ready[rows] <= now)
        )
        return willing if self._owing is None else willing & self._owing[victims.group[rows]]

    def _update(self, now: float) -> None:
        victims = self._victims
        epoch, seen = self._seen
        self._seen = victims.epoch, len(victims.log)
        if epoch != victims.epoch:
            self._resize(len(victims.job))
            self._fitting = kept(self._part, self._placer.nodes.idle, ALL, self._filters)
            self._look(ALL, now)
        elif seen < len(victims.log):
            self._look(np.array(sorted(set(victims.log[seen:])), dtype=np.intp), now)

    def _look(self, rows: Rows, now: float) -> None:
        part, victims, columns = self._part, self._victims, self._placer.nodes.columns
        willing = self._willing(rows, now)
        gpu = np.where(willing, victims.gpu[rows], 0)
        deficit = self._missing(rows)
        cpu = columns.cpu_free[rows] + np.where(willing, victims.cpu[rows], 0).sum(axis=1)
        memory = columns.memory_free[rows] + np.where(willing, victims.memory[rows], 0).sum(axis=1)
        since = np.where(willing, victims.since[rows], 0.0)
        weight = victims.weight[rows]
        alone = willing & (gpu >= deficit[:, None])
        loss = np.where(alone, weight * (now - since), np.inf)
        self._one[rows] = loss.min(axis=1)
        grows = np.where(alone, weight, _TOO_MUCH).min(axis=1)
        self._one_grows[rows] = np.where(grows == _TOO_MUCH, 0, grows)
        self._at[rows] = now
        small = np.where(alone, 0, gpu)
        freed = small.cumsum(axis=1)
        taken = np.clip(deficit[:, None] - (freed - small), 0, small)
        self._many_grows[rows] = deficit
        self._many[rows] = np.where(
            (freed[:, -1] >= deficit) & (deficit > 0), (taken * since).sum(axis=1), -np.inf
        )
        needless = (
            (deficit == 0)
            & (columns.cpu_free[rows] >= part.cpu_milli)
            & (columns.memory_free[rows] >= part.memory_mib)
        )
        self._one[rows] = np.where(needless, 0.0, self._one[rows])
        self._one_grows[rows] = np.where(needless, 0.0, self._one_grows[rows])
        self._possible[rows] = (
            (gpu.sum(axis=1) >= deficit)
            & (cpu >= part.cpu_milli)
            & (memory >= part.memory_mib)
            & columns.open[rows]
            & self._fitting[rows]
        )

    def _missing(self, rows: Rows) -> Ints:
        """GPU-milli that must come free at least, on the GPUs that lack least."""
        part, columns = self._part, self._placer.nodes.columns
        free = columns.gpu_free[rows]
        needs = needs_of(part, columns)
        count = needs.count
        if not count:
            return np.zeros(len(free), dtype=np.int64)
        if free.shape[1] < count:
            return np.full(len(free), _TOO_MUCH, dtype=np.int64)
        _, each = needs.usable(columns, rows)
        usable = (free != ABSENT) & (each <= WHOLE_GPU)
        lacking = np.where(usable, np.maximum(0, each - free), _TOO_MUCH)
        least: Ints = np.partition(lacking, count - 1, axis=1)[:, :count].sum(axis=1)
        return least
