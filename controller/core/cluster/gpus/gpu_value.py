"""Computes the value of a node's free GPUs. The value says how much of these GPUs the usual requests of users
could use.

The model. A free GPU has no value if no submitted request can use the GPU, or if no CPU and memory are left
for a job on the GPU. In this module, milli are thousandths of a GPU. A request k is a request for n GPUs on
one node, with m milli of each GPU, cpu_k CPUs and memory_k memory. A node with the free CPU `cpu` and the
free memory `memory` offers to request k

usable_k = B * min(1, n * min(cpu / cpu_k, memory / memory_k) / G)

where G is the number of GPUs with at least m milli free, and B is the sum of the free milli of these GPUs (0
if G < n). The value of a node is the weighted mean of usable_k over the submitted requests. The weight of a
request is its frequency, divided by the fraction of the cluster's GPUs that the request could use now, times
1000/m. So a request that fits on few nodes has a larger weight. The cost of a placement is the value that the
node loses by the placement. The `thrift` scorer prefers the placement with the least cost.

Example: a node has 2 free GPUs and 8 free CPUs, and all submitted jobs want 1 GPU with 4 CPUs. G = 2, B =
2000, usable = 2000 * min(1, 1 * (8 / 4) / 2) = 2000. A CPU job that takes 4 of the CPUs leaves 2000 * min(1,
(4 / 4) / 2) = 1000. The job takes no GPU but costs 1000 GPU-milli.

How the value is computed. For each size (n, m) and GPU model, the weighted requests are added up to two
curves: the usable part of the free GPUs as a function of the free CPU per n GPUs, and as a function of the
free memory per n GPUs. A curve is stored as GRID + 1 points. The time to compute the value of a node then
depends on the number of sizes, which is small, and not on the number of different requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import ABSENT, Floats, Ints, NodeTable
from controller.core.model.request import PerNodeRequest
from wire.names import WHOLE_GPU

SCARCITY_FLOOR = 0.02
"""A small number that is added to the fraction of the cluster's GPUs that a request can use, so that no
weight is infinite.
"""
GRID = 2_048
MAX_REQUESTS = 512
"""At most this many requests, the most frequent ones, are used. All other requests are too rare to matter."""

HALVE_AT = 20_000
"""When at least this many jobs are counted, all counts are halved, so that old requests count less."""
REVALUE_EVERY = 10_000
FORGET_BELOW = 0.5

EMPTY_PART = PerNodeRequest(cpu_milli=0, memory_mib=0)

Size = tuple[int, int]
Indices = NDArray[np.intp]


def request_size(part: PerNodeRequest) -> Size:
    """Return the size of a request: (number of GPUs, thousandths of each GPU)."""
    return (1, part.share) if part.share else (part.gpus, WHOLE_GPU)


class DemandStats:
    """Counts how often each request was submitted. When `version` grows, the counts have changed so much that
    the values of GPUs (GpuValue) must be computed again.
    """

    def __init__(self) -> None:
        self.counts: dict[PerNodeRequest, float] = {}
        self.total = 0.0
        self.version = 0
        self._due = 1.0

    def copy_from(self, other: DemandStats) -> None:
        self.counts, self.total = dict(other.counts), other.total
        self.version, self._due = other.version, other._due

    def add(self, part: PerNodeRequest) -> bool:
        """Count one job with this request. Return True if `self.version` has grown. The version grows when
        the total count has doubled, and later after every REVALUE_EVERY jobs.
        """
        self.counts[part] = self.counts.get(part, 0.0) + 1.0
        self.total += 1.0
        if self.total < self._due:
            return False
        if self.total >= HALVE_AT:
            self.counts = {
                part: count / 2 for part, count in self.counts.items() if count / 2 >= FORGET_BELOW
            }
            self.total = sum(self.counts.values())
        self._due = self.total + min(self.total, REVALUE_EVERY) + 1
        self.version += 1
        return True


class GpuValue:
    """The present value of the free GPUs of each node. The docstring of the module describes the computation.

    A GpuValue is valid for one `DemandStats.version` and one `Nodes.layout_version`. `update` computes the
    values of changed nodes; its cost is O(request sizes) per node.
    """

    def __init__(self, columns: NodeTable, demand: DemandStats) -> None:
        self._columns = columns
        # Count all GPUs of a node as the model of its first GPU, because nodes with several models are rare.
        self._model = np.maximum(columns.gpu_model[:, 0], 0)
        self._total = float(columns.gpu_count.sum()) * WHOLE_GPU
        asked = self._requests(demand)
        self._sizes = sorted({request_size(part) for part in asked})
        self._number, self._milli = np.array(self._sizes, dtype=np.float64).reshape(-1, 2).T
        free = np.arange(WHOLE_GPU + 1)[:, None]
        self._can_host = (free >= self._milli).astype(np.float64)
        self._offers = self._can_host * free
        self._step = np.maximum(
            np.array([columns.cpu_total.max(), columns.memory_total.max()], dtype=np.float64) / GRID, 1.0
        )
        self._count, self._room = self._offer(slice(None))
        self._curves = self._curves_of(asked)
        self._starts = np.arange(self._curves[..., 0].size).reshape(self._curves.shape[:3]) * (GRID + 1)
        """The index at which each curve begins in the flattened array of curves, by resource, model and
        size.
        """
        self._value = np.zeros(columns.height)
        self.update(range(columns.height))

    def _requests(self, demand: DemandStats) -> dict[PerNodeRequest, float]:
        """Return the most frequent requests with their counts. Add one artificial request: one GPU, with the
        cluster's CPU and memory divided by its number of GPUs.
        """
        columns = self._columns
        asked: dict[PerNodeRequest, float] = {}
        for part, count in demand.counts.items():
            part = self._in_milli(part)
            if part.gpus or part.share:
                asked[part] = asked.get(part, 0.0) + count
        most = sorted(asked, key=lambda part: -asked[part])[:MAX_REQUESTS]
        gpus = max(1, int(columns.gpu_count.sum()))
        even = PerNodeRequest(
            int(columns.cpu_total.sum()) // gpus, int(columns.memory_total.sum()) // gpus, 1
        )
        kept = {part: asked[part] for part in most}
        kept[even] = kept.get(even, 0.0) + 1.0
        return kept

    def _in_milli(self, part: PerNodeRequest) -> PerNodeRequest:
        """Return the request with its GPU memory converted to thousandths of a GPU of the most frequent type
        that suits the request.
        """
        columns = self._columns
        if part.gpus or part.share or not part.wants_gpus:
            return part
        milli = np.array(gpu_needs_of(part, columns).milli_by_type, dtype=np.int64)
        known = columns.gpu_model[columns.gpu_model != ABSENT]
        often = np.bincount(known, minlength=len(milli)) * (milli <= WHOLE_GPU)
        return replace(part, share=int(milli[often.argmax()])) if often.any() else part

    def _offer(self, rows: Any) -> tuple[Floats, Floats]:
        """Return two arrays by node and request size: the number of GPUs with enough free for this size, and
        the sum of the free thousandths of these GPUs. They are G and B in the formula at the top of this
        module.
        """
        free = np.maximum(self._columns.gpu_free[rows], 0)
        return np.add.reduce(self._can_host[free], axis=1), np.add.reduce(self._offers[free], axis=1)

    def _curves_of(self, asked: dict[PerNodeRequest, float]) -> Floats:
        """Return the curves that the docstring of the module describes, as an array by resource (CPU,
        memory), GPU model, request size and grid point. A curve contains the weighted fraction of free GPUs
        that the submitted requests could use with the CPU or memory of each grid point.
        """
        columns = self._columns
        models = max(1, len(columns.models))
        curves = np.zeros((2, models, len(self._sizes), GRID + 1))
        grid = np.arange(GRID + 1) * self._step[:, None]
        total = sum(asked.values())
        for part, arrivals in asked.items():
            size = self._sizes.index(request_size(part))
            number, milli = self._sizes[size]
            may = np.ones(models, dtype=np.bool_)
            milli_of = gpu_needs_of(part, columns).milli_by_type
            if milli_of is not None:
                may[:] = [each <= WHOLE_GPU for each in milli_of]
            need = np.array([[max(part.cpu_milli, 1)], [max(part.memory_mib, 1)]], dtype=np.float64)
            count = np.maximum(self._count[:, size], 1)
            lasting = np.minimum(columns.cpu_free / need[0], columns.memory_free / need[1])
            fed = np.clip(number * lasting / count, 0.0, 1.0)
            able = may[self._model] & (self._count[:, size] >= number)
            usable = float((self._room[:, size] * fed)[able].sum())
            scarcity = usable / max(self._total, 1.0) + SCARCITY_FLOOR
            weight = arrivals / total / scarcity * WHOLE_GPU / milli
            curves[:, may, size] += weight * np.minimum(1.0, grid / need)[:, None]
        scale: float = curves[0, :, :, -1].max(axis=0).sum()
        return curves / (scale or 1.0)

    def _value_of(self, rows: Indices, cpu: Ints, memory: Ints, count: Floats, room: Floats) -> Floats:
        """Return the value of the free GPUs of each node in `rows`. `cpu` and `memory` contain the free CPU
        and memory of these nodes.

        `count` and `room` are arrays by node and request size, as from `_offer`: the number of GPUs with
        enough free, and the sum of their free thousandths.
        """
        share = self._number / np.maximum(count, 1)
        free = np.array((cpu, memory)) / self._step[:, None]
        at = np.minimum((free[:, :, None] * share).astype(np.int64), GRID)
        fed = self._curves.take(at + self._starts[:, self._model[rows]])
        worth: Floats = np.add.reduce(room * np.minimum(*fed) * (count >= self._number), axis=-1)
        return worth

    def update(self, rows: Sequence[int]) -> None:
        """Compute the values of the nodes in `rows` again, because these nodes have changed."""
        chosen = np.array(rows, dtype=np.intp)
        count, room = self._offer(chosen)
        self._count[chosen], self._room[chosen] = count, room
        self._value[chosen] = self._value_of(chosen, *self._left(EMPTY_PART, chosen), count, room)

    def change(self, part: PerNodeRequest, rows: Indices) -> Floats:
        """Return how much a placement of the request changes the value of each node in `rows`. A negative
        number means that the node loses value.

        A request for part of a GPU is placed on the GPU with which the node keeps the greatest value.
        """
        before = self._value[rows]
        if part.wants_gpus and not part.gpus:
            return self._after_best_share(part, rows) - before
        count, room = self._count[rows], self._room[rows]
        if part.gpus:
            # The request takes wholly free GPUs. These GPUs would suit requests of every size, so subtract
            # them from the counts of all sizes.
            fits = self._can_host[WHOLE_GPU]
            count = np.maximum(count - part.gpus * fits, 0)
            room = np.maximum(room - part.gpus * WHOLE_GPU * fits, 0)
        return self._value_of(rows, *self._left(part, rows), count, room) - before

    def _left(self, part: PerNodeRequest, rows: Indices) -> tuple[Ints, Ints]:
        """Return the free CPU and memory of each node after a placement of the request. Negative amounts,
        which overcommit can cause, become 0.
        """
        columns = self._columns
        cpu = np.maximum(columns.cpu_free[rows] - part.cpu_milli, 0)
        return cpu, np.maximum(columns.memory_free[rows] - part.memory_mib, 0)

    def _after_best_share(self, part: PerNodeRequest, rows: Indices) -> Floats:
        """Return the value of each node after the request took part of one of its GPUs. The request takes the
        GPU with which the node loses the least value.
        """
        needs = gpu_needs_of(part, self._columns)
        best = np.full(len(rows), float(ABSENT))
        if needs.milli_by_type is None:
            free = np.sort(self._columns.gpu_free[rows], axis=1)
            tried = free >= needs.milli_each
            # If several GPUs of a node have the same free part, try only one of them, because the others give
            # the same value.
            tried[:, 1:] &= free[:, 1:] != free[:, :-1]
            nodes, slots = np.nonzero(tried)
            after = self._after_share(part, rows[nodes], free[nodes, slots], needs.milli_each)
        else:
            free = self._columns.gpu_free[rows]
            tried, milli = needs.usable(self._columns, rows)
            nodes, slots = np.nonzero(tried)
            each = np.broadcast_to(milli, tried.shape)[nodes, slots]
            after = self._after_share(part, rows[nodes], free[nodes, slots], each)
        np.maximum.at(best, nodes, after)
        return best

    def _after_share(self, part: PerNodeRequest, rows: Indices, free: Ints, share: Ints | int) -> Floats:
        """Return the value of each node in `rows` after the request has taken `share` thousandths of one of
        its GPUs. `free` contains the thousandths that were free on this GPU before.
        """
        rest = free - share
        count = self._count[rows] + self._can_host[rest] - self._can_host[free]
        room = self._room[rows] + self._offers[rest] - self._offers[free]
        return self._value_of(rows, *self._left(part, rows), count, room)

    def best_slot(self, part: PerNodeRequest, row: int, slots: Sequence[int]) -> int:
        """Return the index on the node of the best GPU for a request that takes a part of one GPU. The best
        GPU costs the node the least value. If several cost the same, return the first.
        """
        free = self._columns.gpu_free[row, slots]
        needs = gpu_needs_of(part, self._columns)
        share = np.array(
            [needs.milli_of(kind) for kind in self._columns.gpu_model[row, slots]], dtype=np.int64
        )
        after = self._after_share(part, np.full(len(slots), row, dtype=np.intp), free, share)
        return slots[int(after.argmax())]
