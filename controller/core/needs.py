"""Which GPUs will do for a part, and how much of each: worked out once for all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from controller.core.columns import ABSENT, Bools, Columns, Ints, Rows
from controller.core.requests import Part
from wire.gpuwish import REQUIRE, compute_of
from wire.words import WHOLE_GPU

KEPT = 4_096
NEVER = WHOLE_GPU + 1
"""More than any GPU has."""


@dataclass(frozen=True, slots=True)
class Kind:
    """GPUs that differ in nothing a job could ask for."""

    model: str
    memory_mib: int = 0
    compute: str = ""
    mig: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """`milli` needed of a GPU by kind; None: all kinds alike. One of `groups` must hold all the GPUs."""

    count: int
    each: int
    milli: tuple[int, ...] | None
    groups: Bools | None
    most: int = 0
    """GPU-milli that the part takes of one node at most, whichever of the GPUs there are it gets."""

    def of(self, kind: int) -> int:
        """What the part takes of a GPU of this kind."""
        return self.each if self.milli is None else self.milli[kind]

    def fitting(self, free: Sequence[int], kinds: Sequence[int]) -> list[int]:
        """The slots of one node that will do."""
        if self.milli is None:
            return [slot for slot, left in enumerate(free) if left >= self.each]
        milli = self.milli
        return [
            slot
            for slot, (left, kind) in enumerate(zip(free, kinds, strict=True))
            if kind >= 0 and left >= milli[kind]
        ]

    def met(self, free: Sequence[int], kinds: Sequence[int], row: int) -> bool:
        """Has one node what the part needs?"""
        if not self.count:
            return True
        if self.milli is None and self.groups is None:
            each = self.each
            return sum(left >= each for left in free) >= self.count
        slots = self.fitting(free, kinds)
        if self.groups is None or len(slots) < self.count:
            return len(slots) >= self.count
        return any(sum(bool(group[slot]) for slot in slots) >= self.count for group in self.groups[row])

    def usable(self, columns: Columns, rows: Rows) -> tuple[Bools, Ints | int]:
        """By node and slot: is the GPU free enough, and how much is needed of it?"""
        free = columns.gpu_free[rows]
        if self.milli is None:
            return free >= self.each, self.each
        needed = np.array([*self.milli, NEVER], dtype=np.int64)[columns.gpu_model[rows]]  # -1 takes the last
        return free >= needed, needed

    def keep(self, columns: Columns, rows: Rows) -> Bools:
        """The nodes that have what the part needs."""
        fits, _ = self.usable(columns, rows)
        enough: Bools = fits.sum(axis=1) >= self.count
        if self.groups is not None:
            grouped = (fits[:, None, :] & self.groups[rows]).sum(axis=2)
            enough &= grouped.max(axis=1, initial=0) >= self.count
        return enough


def needs_of(part: Part, columns: Columns) -> Needs:
    """What the part needs of the GPUs of these nodes."""
    if part.gpu is None and not part.models and not columns.divided:
        return _plain(part.gpus, part.share)
    found = columns.known.get(part)
    if found is None:
        if len(columns.known) >= KEPT:
            columns.known.clear()
        found = columns.known[part] = _work_out(part, columns)
    return found


@lru_cache(maxsize=4_096)
def _plain(gpus: int, share: int) -> Needs:
    count, each = (gpus, WHOLE_GPU) if gpus else (int(share > 0), share)
    return Needs(count, each, None, None, count * each)


def _work_out(part: Part, columns: Columns) -> Needs:
    wish = part.gpu
    count, each = (part.gpus, WHOLE_GPU) if part.gpus else (int(part.wants_gpus), part.share or WHOLE_GPU)
    groups = None
    if wish is not None and wish.demands and count > 1:
        groups = columns.groups(wish.numa == REQUIRE, wish.nvlink == REQUIRE)
    milli = _by_kind(part, columns, each)
    there = [milli[kind] for kind in np.unique(columns.gpu_model) if kind != ABSENT]
    most = max((taken for taken in there if taken != NEVER), default=0)
    return Needs(count, each, milli, groups, count * most)


def _by_kind(part: Part, columns: Columns, each: int) -> tuple[int, ...]:
    wanted = set(columns.model_codes(part.models)) if part.models else range(len(columns.kinds))
    wish, found = part.gpu, []
    for code, kind in enumerate(columns.kinds):
        milli = each if code in wanted and kind.mig == (wish.mig if wish else "") else NEVER
        if wish is not None:
            if kind.memory_mib < wish.least_mib or compute_of(kind.compute) < compute_of(wish.compute):
                milli = NEVER
            elif wish.memory_mib and milli != NEVER:
                milli = min(NEVER, -(-wish.memory_mib * WHOLE_GPU // max(kind.memory_mib, 1)))
        found.append(milli)
    return tuple(found)
