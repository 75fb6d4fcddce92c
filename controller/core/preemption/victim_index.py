"""A matrix of the preemptible jobs on each node, and lower bounds on the work that is lost if jobs on a node
are preempted.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import ABSENT, ALL_ROWS, Bools, Floats, Ints, Rows
from controller.core.framework.interfaces import Strategy
from controller.core.model.job import NEVER, NO_JOB
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer
from controller.core.placement.ranking import filters_for, rows_passing
from controller.core.preemption.fairshare_reclaim import ReclaimPolicy, ReclaimStrategy
from controller.core.preemption.guards import GuardsOf, is_preemptible, likely_ends, preemptible_from
from controller.core.state.state import State
from wire.names import WHOLE_GPU

_COLUMNS = (
    *("job", "gpu", "weight", "cpu", "memory", "since", "standing", "group", "queue", "ready"),
    *("loses", "spare_s", "predicted_end", "limit_end"),
)
"""The arrays of VictimIndex. Each array has one row for each node and one column for each job on the node.
`_values_of_jobs` returns the values of a job in the same order.
"""
_FIRST_WIDTH = 8
_TOO_MUCH = 1 << 40
_EARLY_S = 1.0
"""The nodes of jobs that are likely to end soon are read this many seconds early, so that no such job is
missed because of rounded times.
"""


class VictimIndex:
    """A matrix with one row for each node. A row contains the jobs on the node that the preemption strategy
    may stop, the job with the least loss per GPU first.

    The loss of a job is the work that is lost if the job is stopped: its work since the start or the last
    checkpoint. A job that saves its state before its preemption loses nothing.

    1. `sync` writes only the rows of changed nodes (`Nodes.changed_since`) and of nodes with a changed job. A
       job changes when it saves a checkpoint, or when its protection against preemption (`standing`) changes.
    2. `changed_rows` lists the rows that were written since the last rebuild, and the rows with a job that
       has become preemptible only because time has passed. Each LossBounds object (the bounds for one
       request) remembers how much of this list it has read.
    3. When nodes are added or removed, or when the list is too long, all rows are written again (a rebuild).
       A rebuild empties the list and increases `rebuilds`. Then each LossBounds reads all rows.

    Invariant: the order within a row does not change as time passes. If a job loses work, the loss for each
    of its GPUs grows by the same amount per second. Without an event, more jobs of a row become preemptible
    only in two cases: a time of protection ends, or a job is still running after a likely end
    (`likely_ends`). Cost: O(jobs on the node) for each row written.
    """

    def __init__(self, state: State, strategy: Strategy, guards_of: GuardsOf) -> None:
        self.changed_rows: list[int] = []
        self.rebuilds = 0
        self._state = state
        self._strategy = strategy
        self._guards_of = guards_of
        self._seen = (-1, 0)
        self._becoming_preemptible: list[tuple[float, int]] = []
        self._outliving: list[tuple[float, int]] = []
        """A heap of (likely end of a job, row of its node). A job that still runs after its likely end may be
        preempted again.
        """
        self._ending_from: list[tuple[float, float, int]] = []
        """A heap of (time, likely end, row of the node) with one entry for each likely end of a job. From
        this time until the likely end, the job is spared (not preempted).
        """
        self._ending_rows: dict[int, float] = {}
        """The rows of nodes that may have a spared job (likely to end soon, so not preempted), each with the
        time until which the node may have a spared job.
        """
        self._has_free_gpu: Bools = np.zeros(0, dtype=np.bool_)
        """True for each node that accepts jobs and has at least a part of a GPU free."""
        self._nodes_with_free_gpu = 0
        self._reclaim = strategy if isinstance(strategy, ReclaimStrategy) else None
        self.groups: dict[Hashable, int] = {}
        """The number of each group (tenant or project of the reclaim strategy) in the matrix `group`."""
        self.queues: dict[str, int] = {}
        """The number of each queue of running jobs in the matrix `queue`."""
        self._resize(0, _FIRST_WIDTH)

    def _resize(self, height: int, width: int) -> None:
        self.job: Ints = np.full((height, width), NO_JOB, dtype=np.int64)
        self.gpu: Ints = np.zeros((height, width), dtype=np.int64)
        self.weight: Ints = np.zeros((height, width), dtype=np.int64)
        """The thousandths of GPUs whose work is lost: the job's GPUs on this node if the job has no other
        node or can give up this node alone, and all GPUs of the job if it must be stopped on all its nodes.
        """
        self.cpu: Ints = np.zeros((height, width), dtype=np.int64)
        self.memory: Ints = np.zeros((height, width), dtype=np.int64)
        self.since: Floats = np.zeros((height, width))
        self.standing: Floats = np.zeros((height, width))
        self.group: Ints = np.zeros((height, width), dtype=np.int64)
        self.queue: Ints = np.zeros((height, width), dtype=np.int64)
        self.ready: Floats = np.full((height, width), NEVER)
        self.loses: Bools = np.zeros((height, width), dtype=np.bool_)
        """False if the job saves its state before its preemption, so that no work is lost."""
        self.spare_s: Floats = np.zeros((height, width))
        self.predicted_end: Floats = np.full((height, width), NEVER)
        self.limit_end: Floats = np.full((height, width), NEVER)
        """`predicted_end`, `limit_end` and `spare_s` are the fields of LikelyEnds. In the last `spare_s`
        seconds before these ends, a job is not preempted.
        """
        self._arrays = [getattr(self, name) for name in _COLUMNS]

    def sync(self, changed: Iterable[int], now: float) -> None:
        """Write the rows of the nodes that changed, and of the nodes of the jobs in `changed`.

        `changed` contains the jobs whose protection against preemption (`standing`) or loss has changed since
        the last `sync`.
        """
        nodes = self._state.nodes
        layout, changes = self._seen
        rows = nodes.changed_since(changes) if layout == nodes.layout_version else None
        if rows is None or len(self.changed_rows) > 8 * len(nodes) + 1_024:
            self._rebuild(now)
        else:
            jobs, by_name = self._state.jobs, nodes.by_name
            rows_of_jobs = {by_name[name].row for job in changed if job in jobs for name in jobs[job].members}
            for row in sorted(rows_of_jobs.union(rows)):
                self._write_row(row, now)
                self._note_free_gpu(row)
                self.changed_rows.append(row)
            for due in (self._becoming_preemptible, self._outliving):
                while due and due[0][0] <= now:
                    self.changed_rows.append(heapq.heappop(due)[1])
        self._seen = nodes.layout_version, nodes.change_count
        self._note_ending_rows(now)

    def _note_ending_rows(self, now: float) -> None:
        """Record in `_ending_rows` the nodes with a spared job. A spared job is likely to end soon, so it is
        not preempted now.
        """
        due, begun = self._ending_from, self._ending_rows
        while due and due[0][0] <= now + _EARLY_S:
            _, end, row = heapq.heappop(due)
            begun[row] = max(end, begun.get(row, end))
        for row in [row for row, until in begun.items() if until <= now]:
            del begun[row]

    @property
    def may_spare(self) -> bool:
        """True if some job was likely to end soon at the last `sync`."""
        return bool(self._ending_rows)

    @property
    def next_preemptible_at(self) -> float:
        """The next time at which a running job loses its protection and becomes preemptible. NEVER if there
        is none.
        """
        return self._becoming_preemptible[0][0] if self._becoming_preemptible else NEVER

    def _rebuild(self, now: float) -> None:
        rows = self._state.nodes.rows
        self._resize(len(rows), max((len(node.held) for node in rows), default=0) + 1)
        self._becoming_preemptible.clear()
        self._outliving.clear()
        self._ending_from.clear()
        self._ending_rows.clear()
        self.changed_rows.clear()
        self.rebuilds += 1
        # Collect the values of all jobs and write each array once, because single writes take longer.
        values: list[tuple[float, ...]] = []
        counts = []
        for row in range(len(rows)):
            found = self._values_of_jobs(row, now)
            values += found
            counts.append(len(found))
        if values:
            occupied = np.arange(self.job.shape[1]) < np.array(counts)[:, np.newaxis]
            for array, column in zip(self._arrays, zip(*values, strict=True), strict=True):
                array[occupied] = column
        columns = self._state.nodes.columns
        self._has_free_gpu = columns.open & (columns.gpu_free > 0).any(axis=1)
        self._nodes_with_free_gpu = int(np.count_nonzero(self._has_free_gpu))

    @property
    def any_gpu_free(self) -> bool:
        """True if at least a part of a GPU was free at the last `sync`, on a node that accepts jobs."""
        return self._nodes_with_free_gpu > 0

    def _note_free_gpu(self, row: int) -> None:
        columns = self._state.nodes.columns
        free = bool(columns.open[row]) and max(columns.gpu_free[row].tolist(), default=0) > 0
        self._nodes_with_free_gpu += free - int(self._has_free_gpu[row])
        self._has_free_gpu[row] = free

    def _write_row(self, row: int, now: float) -> None:
        found = self._values_of_jobs(row, now)
        if len(found) > self.job.shape[1]:
            self._widen(2 * len(found))
        self.job[row] = NO_JOB
        for at, values in enumerate(found):
            for column, value in zip(self._arrays, values, strict=True):
                column[row, at] = value

    def _values_of_jobs(self, row: int, now: float) -> list[tuple[float, ...]]:
        """Return the values of `_COLUMNS` for each preemptible job on the node, the job with the least loss
        per GPU first.

        Also put three kinds of times on heaps: when a job becomes preemptible, when it becomes spared because
        it is likely to end soon, and its likely ends.
        """
        jobs, node = self._state.jobs, self._state.nodes.rows[row]
        found = []
        for number in node.held:
            job = jobs[number]
            guards = self._guards_of(job)
            if is_preemptible(job, guards) and not job.members[node.name].leaving:
                found.append((not job.spec.saves, -job.unsaved_since, number, job, guards))
        found.sort()
        values: list[tuple[float, ...]] = []
        for loses, started, number, job, guards in found:
            allocation = node.held[number]
            ready = preemptible_from(job, guards)
            spare_s, predicted_end, limit_end = likely_ends(job, guards)
            gpu = sum([hold.milli for hold in allocation.gpus])
            only_here = len(job.members) == 1 or job.spare(node.name)
            group = 0
            if self._reclaim is not None:
                group = self.groups.setdefault(self._reclaim.group(job, self._state), len(self.groups))
            values.append(
                (  # The order is that of `_COLUMNS`.
                    number,
                    gpu,
                    gpu if only_here else job.gpu_milli,
                    allocation.cpu_milli,
                    allocation.memory_mib,
                    -started,
                    self._strategy.standing(job),
                    group,
                    self.queues.setdefault(job.spec.queue, len(self.queues)),
                    ready,
                    loses,
                    spare_s,
                    predicted_end,
                    limit_end,
                )
            )
            if now < ready < NEVER:
                heapq.heappush(self._becoming_preemptible, (ready, row))
            for end in (predicted_end, limit_end):
                if now < end < NEVER:
                    heapq.heappush(self._outliving, (end, row))
                    heapq.heappush(self._ending_from, (end - spare_s, end, row))
        return values

    def ending_jobs(self, now: float) -> list[int]:
        """Return the ids of the spared jobs: running jobs that are not preempted now, because they are likely
        to end soon. The lowest id is first. `now` is the time of the last `sync`.
        """
        if not self.may_spare:
            return []
        rows = np.array(sorted(self._ending_rows), dtype=np.intp)
        jobs = self.job[rows]
        return sorted(set(jobs[self.ending(rows, now) & (jobs != NO_JOB)].tolist()))

    def ending(self, rows: Rows, now: float) -> Bools:
        """Return which jobs are spared (not preempted now, because they are likely to end soon), as a matrix
        of True and False. The rows of the matrix are the nodes `rows`, and the columns are the jobs on each
        node.
        """
        earliest = now + self.spare_s[rows]
        predicted, limit = self.predicted_end[rows], self.limit_end[rows]
        ending: Bools = ((now < predicted) & (predicted <= earliest)) | ((now < limit) & (limit <= earliest))
        return ending

    def _widen(self, width: int) -> None:
        for name in _COLUMNS:
            old = getattr(self, name)
            setattr(self, name, np.pad(old, ((0, 0), (0, width - old.shape[1]))))
        self._arrays = [getattr(self, name) for name in _COLUMNS]


class LossBounds:
    """For each node, a lower bound on the work that is lost if jobs are stopped until the request fits on the
    node.

    The unit is GPU-milli-seconds: thousandths of a GPU (GPU-milli) times seconds.

    Algorithm. D is the number of GPU-milli that are missing on the node (`_missing_gpu`). A set of victims
    that frees D contains one job that frees D alone, or only jobs that free less than D each.
    1. `one` is the bound for the first case: the least loss of a job that frees D alone. `one` grows per
       second by the GPU-milli of the smallest of these jobs.
    2. `many` is the bound for the second case. `many` adds up the losses of the other jobs, the least loss
       per GPU first, until these jobs free D. Only the needed part of the last job counts. `many` grows per
       second by the part of D that jobs with a loss free.
    3. The bound is the smaller of the two. The bound is infinite if all preemptible jobs together are not
       enough.

    Invariant: while the row of a node in the index does not change, no set of victims on the node loses less
    than the bound. So a search through the nodes in the order of their bounds may stop early. Cost: O(rows
    changed * jobs per row) for an update, O(nodes) for each call of `losses`.

    Example: 4 GPUs are missing. One job with 4 GPUs began an hour ago, so `one` is 4 GPU-hours. Three jobs
    with 2 GPUs each began 30 minutes ago. Four of their 6 GPUs are needed, so `many` is 2 GPU-hours. The
    bound is 2 GPU-hours.
    """

    def __init__(
        self,
        part: PerNodeRequest,
        reach: float,
        index: VictimIndex,
        placer: Placer,
        policy: ReclaimPolicy | None = None,
        queues: Collection[str] | None = None,
    ) -> None:
        self._part = part
        self._reach = reach
        self._queues = queues
        """The queues whose jobs may be stopped. None means all queues."""
        self._gives_back = (
            None
            if policy is None
            else np.array([policy.must_give_back(each) for each in index.groups] or [False])
        )
        """For each group number, True if the group must give resources back. None if the strategy does not
        reclaim.
        """
        self._index = index
        self._placer = placer
        self._filters = filters_for(part, placer.pipeline)
        self._seen = (-1, 0)
        self._reset(0)

    def _reset(self, height: int) -> None:
        self._one: Floats = np.zeros(height)
        """The loss `one` at the time `_at`."""
        self._one_grows: Floats = np.zeros(height)
        self._at: Floats = np.zeros(height)
        self._many: Floats = np.zeros(height)
        """The loss `many` at the time t is `_many_grows * t - _many`."""
        self._many_grows: Floats = np.zeros(height)
        self.missing_gpu: Floats = np.zeros(height)
        """How many thousandths of GPUs must become free on each node before the request fits."""
        self._least: Floats = np.zeros(height)
        """0 for each node on which the request can fit, and infinity for all other nodes."""
        self._fitting: Bools = np.zeros(height, dtype=np.bool_)

    def losses(self, now: float) -> Floats:
        """Return for each node a lower bound on the work that is lost if jobs there are stopped until the
        request fits. The unit is GPU-milli-seconds.

        The bound is infinite if the request does not fit even after all preemptible jobs have been stopped,
        or if `rule_out` was called for the node.
        """
        self._update(now)
        # Compute in place, because allocating new arrays would take as long as the computation, and `losses`
        # is called for each decision.
        one: Floats = now - self._at
        one *= self._one_grows
        one += self._one
        many: Floats = self._many_grows * now
        many -= self._many
        np.minimum(one, many, out=one)
        np.maximum(one, self._least, out=one)
        return one

    def rule_out(self, row: int) -> None:
        """Exclude a node until its jobs change, because stopping jobs there does not free enough for the
        request.
        """
        self._least[row] = np.inf

    def preemptible(self, row: int, now: float) -> list[int]:
        """Return the jobs of a node that may be stopped for this request, the job with the least loss per GPU
        first.
        """
        index = self._index
        return [int(job) for job in index.job[row][self._preemptible(np.array([row]), now)[0]]]

    def _preemptible(self, rows: Rows, now: float) -> Bools:
        index = self._index
        preemptible: Bools = (
            (index.job[rows] != NO_JOB) & (index.standing[rows] <= self._reach) & (index.ready[rows] <= now)
        )
        if index.may_spare:
            preemptible = preemptible & ~index.ending(rows, now)
        if self._gives_back is not None:
            preemptible = preemptible & self._gives_back[index.group[rows]]
        if self._queues is not None:
            allowed = np.array([queue in self._queues for queue in index.queues] or [False])
            preemptible = preemptible & allowed[index.queue[rows]]
        return preemptible

    def _update(self, now: float) -> None:
        index = self._index
        epoch, seen = self._seen
        self._seen = index.rebuilds, len(index.changed_rows)
        if epoch != index.rebuilds:
            self._reset(len(index.job))
            self._fitting = rows_passing(self._part, self._placer.nodes.idle, ALL_ROWS, self._filters)
            self._compute(ALL_ROWS, now)
        elif seen < len(index.changed_rows):
            self._compute(np.array(sorted(set(index.changed_rows[seen:])), dtype=np.intp), now)

    def _compute(self, rows: Rows, now: float) -> None:
        part, index, columns = self._part, self._index, self._placer.nodes.columns
        preemptible = self._preemptible(rows, now)
        gpu = np.where(preemptible, index.gpu[rows], 0)
        deficit = self._missing_gpu(rows)
        cpu = columns.cpu_free[rows] + np.where(preemptible, index.cpu[rows], 0).sum(axis=1)
        memory = columns.memory_free[rows] + np.where(preemptible, index.memory[rows], 0).sum(axis=1)
        since = np.where(preemptible, index.since[rows], 0.0)
        loses = index.loses[rows]
        weight = np.where(loses, index.weight[rows], 0)
        alone = preemptible & (gpu >= deficit[:, None])
        loss = np.where(alone, weight * (now - since), np.inf)
        self._one[rows] = loss.min(axis=1)
        grows = np.where(alone, weight, _TOO_MUCH).min(axis=1)
        self._one_grows[rows] = np.where(grows == _TOO_MUCH, 0, grows)
        self._at[rows] = now
        small = np.where(alone, 0, gpu)
        freed = small.cumsum(axis=1)
        taken = np.where(loses, np.clip(deficit[:, None] - (freed - small), 0, small), 0)
        self._many_grows[rows] = taken.sum(axis=1)
        self.missing_gpu[rows] = deficit
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
        possible = (
            (gpu.sum(axis=1) >= deficit)
            & (cpu >= part.cpu_milli)
            & (memory >= part.memory_mib)
            & columns.open[rows]
            & self._fitting[rows]
        )
        self._least[rows] = np.where(possible, 0.0, np.inf)

    def _missing_gpu(self, rows: Rows) -> Ints:
        """Return for each node the least number of thousandths of GPUs that must become free before the
        request fits. The number is 0 if enough suitable GPUs are free.
        """
        part, columns = self._part, self._placer.nodes.columns
        free = columns.gpu_free[rows]
        needs = gpu_needs_of(part, columns)
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
