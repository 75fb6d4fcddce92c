"""What the free GPUs of a node are worth to those who ask for GPUs, and what a placement takes from that.

A free GPU is worth something only as far as the node's CPU and memory can feed a job on it, and as the jobs
that people submit can use it. For a request k of n GPUs of m milli each, a node offers

    usable_k = B · min(1, n · min(cpu / cpu_k, memory / memory_k) / G)

with G the GPUs that have m free and B what is free on them in all (0 if fewer than n). The worth of a node is
the mean of usable_k over what has been asked, weighted by its frequency, by how little of it there is in the
whole cluster, and by 1000/m. The best place is where the least worth is lost.

Requests of one size (n, m) and model are folded into one concave curve over CPU per GPU and one over memory
per GPU, looked up on a grid: the cost follows sizes, of which there are few, not requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.core.columns import ABSENT, Columns, Floats, Ints
from controller.core.demand import Demand
from controller.core.needs import needs_of
from controller.core.requests import Part
from wire.words import WHOLE_GPU

SCARCE = 0.02
"""What is scarcer than this part of the cluster costs no more for it."""
GRID = 2_048
MOST_REQUESTS = 512
"""The most frequent ones are looked at; the rest are too rare to matter."""

NOTHING = Part(cpu_milli=0, memory_mib=0)

Size = tuple[int, int]
Indices = NDArray[np.intp]


def size_of(part: Part) -> Size:
    """How many GPUs of how many milli."""
    return (1, part.share) if part.share else (part.gpus, WHOLE_GPU)


class Worth:
    """Curves and values for one edition of the demand on one layout of the nodes."""

    def __init__(self, columns: Columns, demand: Demand) -> None:
        self._columns = columns
        self._model = np.maximum(columns.gpu_model[:, 0], 0)  # a node of several models counts as its first
        self._total = float(columns.gpu_count.sum()) * WHOLE_GPU
        asked = self._asked(demand)
        self._sizes = sorted({size_of(part) for part in asked})
        self._number, self._milli = np.array(self._sizes, dtype=np.float64).reshape(-1, 2).T
        free = np.arange(WHOLE_GPU + 1)[:, None]
        self._sees = (free >= self._milli).astype(np.float64)
        self._gives = self._sees * free
        self._step = np.maximum(
            np.array([columns.cpu_total.max(), columns.memory_total.max()], dtype=np.float64) / GRID, 1.0
        )
        self._count, self._room = self._offer(slice(None))
        self._curves = self._draw(asked)
        self._starts = np.arange(self._curves[..., 0].size).reshape(self._curves.shape[:3]) * (GRID + 1)
        """Where each curve begins, by resource, model and size."""
        self._value = self._appraise(np.arange(columns.height))

    def _asked(self, demand: Demand) -> dict[Part, float]:
        """The requests that count, and one made up: a GPU with its even part of the cluster's CPU."""
        columns = self._columns
        asked: dict[Part, float] = {}
        for part, count in demand.seen.items():
            part = self._in_milli(part)
            if part.gpus or part.share:
                asked[part] = asked.get(part, 0.0) + count
        most = sorted(asked, key=lambda part: -asked[part])[:MOST_REQUESTS]
        gpus = max(1, int(columns.gpu_count.sum()))
        even = Part(int(columns.cpu_total.sum()) // gpus, int(columns.memory_total.sum()) // gpus, 1)
        kept = {part: asked[part] for part in most}
        kept[even] = kept.get(even, 0.0) + 1.0
        return kept

    def _in_milli(self, part: Part) -> Part:
        """A share by memory as what it is of the most frequent GPU that will do."""
        columns = self._columns
        if part.gpus or part.share or not part.wants_gpus:
            return part
        milli = np.array(needs_of(part, columns).milli, dtype=np.int64)
        known = columns.gpu_model[columns.gpu_model != ABSENT]
        often = np.bincount(known, minlength=len(milli)) * (milli <= WHOLE_GPU)
        return replace(part, share=int(milli[often.argmax()])) if often.any() else part

    def _offer(self, rows: Any) -> tuple[Floats, Floats]:
        """For every size: how many GPUs can host it, and what is free on them."""
        free = np.maximum(self._columns.gpu_free[rows], 0)
        return np.add.reduce(self._sees[free], axis=1), np.add.reduce(self._gives[free], axis=1)

    def _draw(self, asked: dict[Part, float]) -> Floats:
        """The curves, by resource, model and size."""
        columns = self._columns
        models = max(1, len(columns.models))
        curves = np.zeros((2, models, len(self._sizes), GRID + 1))
        grid = np.arange(GRID + 1) * self._step[:, None]
        total = sum(asked.values())
        for part, arrivals in asked.items():
            size = self._sizes.index(size_of(part))
            number, milli = self._sizes[size]
            may = np.ones(models, dtype=np.bool_)
            milli_of = needs_of(part, columns).milli
            if milli_of is not None:
                may[:] = [each <= WHOLE_GPU for each in milli_of]
            need = np.array([[max(part.cpu_milli, 1)], [max(part.memory_mib, 1)]], dtype=np.float64)
            count = np.maximum(self._count[:, size], 1)
            lasting = np.minimum(columns.cpu_free / need[0], columns.memory_free / need[1])
            fed = np.clip(number * lasting / count, 0.0, 1.0)
            able = may[self._model] & (self._count[:, size] >= number)
            usable = float((self._room[:, size] * fed)[able].sum())
            scarcity = usable / max(self._total, 1.0) + SCARCE
            weight = arrivals / total / scarcity * WHOLE_GPU / milli
            curves[:, may, size] += weight * np.minimum(1.0, grid / need)[:, None]
        scale: float = curves[0, :, :, -1].max(axis=0).sum()
        return curves / (scale or 1.0)

    def _worth(self, rows: Indices, cpu: Ints, memory: Ints, count: Floats, room: Floats) -> Floats:
        """Worth of states of these nodes; count and room have a column a size."""
        share = self._number / np.maximum(count, 1)
        free = np.array((cpu, memory)) / self._step[:, None]
        at = np.minimum((free[:, :, None] * share).astype(np.int64), GRID)
        fed = self._curves.take(at + self._starts[:, self._model[rows]])
        worth: Floats = np.add.reduce(room * np.minimum(*fed) * (count >= self._number), axis=-1)
        return worth

    def _appraise(self, rows: Indices) -> Floats:
        return self._worth(rows, *self._left(NOTHING, rows), self._count[rows], self._room[rows])

    def update(self, rows: Sequence[int]) -> None:
        """These nodes have changed."""
        chosen = np.array(rows, dtype=np.intp)
        self._count[chosen], self._room[chosen] = self._offer(chosen)
        self._value[chosen] = self._appraise(chosen)

    def kept(self, part: Part, rows: Indices) -> Floats:
        """Worth after minus worth before, per node; a share goes where most is kept."""
        before = self._value[rows]
        if part.wants_gpus and not part.gpus:
            return self._after_best_share(part, rows) - before
        count, room = self._count[rows], self._room[rows]
        if part.gpus:
            fits = self._sees[WHOLE_GPU]  # whole GPUs are seen by every size
            count = np.maximum(count - part.gpus * fits, 0)
            room = np.maximum(room - part.gpus * WHOLE_GPU * fits, 0)
        return self._worth(rows, *self._left(part, rows), count, room) - before

    def _left(self, part: Part, rows: Indices) -> tuple[Ints, Ints]:
        """CPU and memory once the part has its own; a node may hold more than it says it has."""
        columns = self._columns
        cpu = np.maximum(columns.cpu_free[rows] - part.cpu_milli, 0)
        return cpu, np.maximum(columns.memory_free[rows] - part.memory_mib, 0)

    def _after_best_share(self, part: Part, rows: Indices) -> Floats:
        """Worth of every node after its best GPU gave the share."""
        needs = needs_of(part, self._columns)
        best = np.full(len(rows), float(ABSENT))
        if needs.milli is None:
            free = np.sort(self._columns.gpu_free[rows], axis=1)
            tried = free >= needs.each
            tried[:, 1:] &= free[:, 1:] != free[:, :-1]  # of GPUs with as much free one is enough
            nodes, slots = np.nonzero(tried)
            after = self._after_share(part, rows[nodes], free[nodes, slots], needs.each)
        else:
            free = self._columns.gpu_free[rows]
            tried, milli = needs.usable(self._columns, rows)
            nodes, slots = np.nonzero(tried)
            each = np.broadcast_to(milli, tried.shape)[nodes, slots]
            after = self._after_share(part, rows[nodes], free[nodes, slots], each)
        np.maximum.at(best, nodes, after)
        return best

    def _after_share(self, part: Part, rows: Indices, free: Ints, share: Ints | int) -> Floats:
        """Worth of each of these nodes after a GPU with so much free gave the share."""
        rest = free - share
        count = self._count[rows] + self._sees[rest] - self._sees[free]
        room = self._room[rows] + self._gives[rest] - self._gives[free]
        return self._worth(rows, *self._left(part, rows), count, room)

    def best_slot(self, part: Part, row: int, slots: Sequence[int]) -> int:
        """The GPU of a node, among these, from which a share takes the least; the first among equals."""
        free = self._columns.gpu_free[row, slots]
        needs = needs_of(part, self._columns)
        share = np.array([needs.of(kind) for kind in self._columns.gpu_model[row, slots]], dtype=np.int64)
        after = self._after_share(part, np.full(len(slots), row, dtype=np.intp), free, share)
        return slots[int(after.argmax())]
