"""Finds the GPU types that suit a request. Computes how many thousandths of a GPU of each type the request
takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import ABSENT, Bools, Ints, NodeTable, Rows, names_model
from controller.core.model.request import PerNodeRequest
from wire.job.placement.gpu_requirements import REQUIRE, parse_compute_capability
from wire.names import WHOLE_GPU

MAX_CACHED = 4_096
UNSUITABLE = WHOLE_GPU + 1
"""The value in `milli_by_type` for an unsuitable GPU type. It is more than any GPU can have free."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU: model, memory, compute capability and MIG profile. For requests, all GPUs of one type
    are equal.
    """

    model: str
    memory_mib: int = 0
    compute: str = ""
    mig: str = ""


@dataclass(frozen=True, slots=True)
class GpuNeeds:
    """The GPUs that a request needs on one node: `count` GPUs, all in one group of `groups`.

    Milli are thousandths of a GPU. `milli_by_type` contains, for each GPU type, the milli that the request
    takes of one GPU of this type. `milli_by_type` is None if all types are suitable. The request then takes
    `milli_each` of each of its GPUs.

    `groups` contains sets of GPU indices on one node. The GPUs of a set are on one NUMA node, or are linked
    by NVLink, as the request requires. `groups` is None if the request requires neither.
    """

    count: int
    milli_each: int
    milli_by_type: tuple[int, ...] | None
    groups: Bools | None
    max_milli: int = 0
    """The most thousandths of GPUs that the request can take on one node, summed over its GPUs."""

    def milli_of(self, kind: int) -> int:
        """Return how many thousandths the request takes of a GPU of the type `kind` (an index in
        `NodeTable.gpu_types`). Return UNSUITABLE if GPUs of this type do not suit the request.
        """
        return self.milli_each if self.milli_by_type is None else self.milli_by_type[kind]

    def fitting_slots(self, free: Sequence[int], kinds: Sequence[int]) -> list[int]:
        """Return the indices (on one node) of suitable GPUs. A suitable GPU has a suitable type and enough
        free thousandths.
        """
        if self.milli_by_type is None:
            return [slot for slot, left in enumerate(free) if left >= self.milli_each]
        milli = self.milli_by_type
        return [
            slot
            for slot, (left, kind) in enumerate(zip(free, kinds, strict=True))
            if kind >= 0 and left >= milli[kind]
        ]

    def met_by(self, free: Sequence[int], kinds: Sequence[int], row: int) -> bool:
        """Return whether the GPUs of the node in table row `row` are enough for the request. `free` contains
        the free thousandths of each GPU. `kinds` contains the type of each GPU, as an index in
        `NodeTable.gpu_types`.
        """
        if not self.count:
            return True
        if self.milli_by_type is None and self.groups is None:
            each = self.milli_each
            return sum(left >= each for left in free) >= self.count
        slots = self.fitting_slots(free, kinds)
        if self.groups is None or len(slots) < self.count:
            return len(slots) >= self.count
        return any(sum(bool(group[slot]) for slot in slots) >= self.count for group in self.groups[row])

    def usable(self, columns: NodeTable, rows: Rows) -> tuple[Bools, Ints | int]:
        """Return (fits, milli) for the GPUs of the nodes in `rows`.

        `fits` is an array by node and GPU. It is True if the GPU is suitable and has enough free for the
        request. `milli` is the number of thousandths that the request takes of each GPU: an array of the same
        shape, or one number for all GPUs.
        """
        free = columns.gpu_free[rows]
        if self.milli_by_type is None:
            return free >= self.milli_each, self.milli_each
        # Add UNSUITABLE as the last entry. An index without a GPU has the type ABSENT (-1), and index -1
        # selects this entry.
        milli = np.array([*self.milli_by_type, UNSUITABLE], dtype=np.int64)
        needed = milli[columns.gpu_model[rows]]
        return free >= needed, needed

    def nodes_fitting(self, columns: NodeTable, rows: Rows) -> Bools:
        """Return an array that is True for each node in `rows` whose GPUs are enough for the request."""
        fits, _ = self.usable(columns, rows)
        enough: Bools = fits.sum(axis=1) >= self.count
        if self.groups is not None:
            grouped = (fits[:, None, :] & self.groups[rows]).sum(axis=2)
            enough &= grouped.max(axis=1, initial=0) >= self.count
        return enough


def gpu_needs_of(part: PerNodeRequest, columns: NodeTable) -> GpuNeeds:
    """Return which GPUs the request needs on the nodes of the table `columns`. The result is cached in the
    table until labels, taints or hardware of a node change.
    """
    found = columns.gpu_needs_cache.get(part)
    if found is None:
        if len(columns.gpu_needs_cache) >= MAX_CACHED:
            columns.gpu_needs_cache.clear()
        found = columns.gpu_needs_cache[part] = _compute(part, columns)
    return found


def milli_by_model(part: PerNodeRequest, columns: NodeTable) -> dict[str, int]:
    """Return the GPU models that suit the request, with the most thousandths of GPUs of each model that the
    request can take on one node. Return an empty result for a request without GPUs.

    Example: a request for 2 whole GPUs that accepts only H100 takes 2,000 thousandths of H100.
    """
    needs, found = gpu_needs_of(part, columns), dict[str, int]()
    if not needs.count:
        return found
    for code, kind in enumerate(columns.gpu_types):
        if needs.milli_of(code) < UNSUITABLE:
            found[kind.model] = max(found.get(kind.model, 0), needs.count * needs.milli_of(code))
    return found


def milli_of_models(
    part: PerNodeRequest, columns: NodeTable, names: Sequence[str], nodes: int
) -> tuple[int, ...]:
    """Return the most thousandths of GPUs of each model in `names` that the request can take on `nodes`
    nodes. The amount is 0 unless all GPUs that suit the request are of this model.
    """
    suited = milli_by_model(part, columns) if names else {}
    most = max(suited.values(), default=0) * nodes
    return tuple(most if all(names_model(name, model) for model in suited) else 0 for name in names)


def _compute(part: PerNodeRequest, columns: NodeTable) -> GpuNeeds:
    wish = part.gpu
    if wish is None and not part.models and not any(kind.mig for kind in columns.gpu_types):
        count, each = (part.gpus, WHOLE_GPU) if part.gpus else (int(part.share > 0), part.share)
        # This request accepts every GPU type, and requires neither one NUMA node nor NVLink.
        return GpuNeeds(count, each, None, None, count * each)
    count, each = (part.gpus, WHOLE_GPU) if part.gpus else (int(part.wants_gpus), part.share or WHOLE_GPU)
    groups = None
    if wish is not None and wish.demands and count > 1:
        groups = columns.groups(wish.numa == REQUIRE, wish.nvlink == REQUIRE)
    milli = _milli_by_type(part, columns, each)
    there = [milli[kind] for kind in np.unique(columns.gpu_model) if kind != ABSENT]
    most = max((taken for taken in there if taken != UNSUITABLE), default=0)
    return GpuNeeds(count, each, milli, groups, count * most)


def _milli_by_type(part: PerNodeRequest, columns: NodeTable, each: int) -> tuple[int, ...]:
    wanted = set(columns.model_codes(part.models)) if part.models else range(len(columns.gpu_types))
    wish, found = part.gpu, []
    for code, kind in enumerate(columns.gpu_types):
        milli = each if code in wanted and kind.mig == (wish.mig if wish else "") else UNSUITABLE
        if wish is not None:
            if kind.memory_mib < wish.least_mib or parse_compute_capability(
                kind.compute
            ) < parse_compute_capability(wish.compute):
                milli = UNSUITABLE
            elif wish.memory_mib and milli != UNSUITABLE:
                milli = min(UNSUITABLE, -(-wish.memory_mib * WHOLE_GPU // max(kind.memory_mib, 1)))
        found.append(milli)
    return tuple(found)
