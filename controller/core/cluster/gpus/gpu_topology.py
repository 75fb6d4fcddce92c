"""Finds groups of GPUs of one host: GPUs on the same NUMA node, and GPUs that are all linked by NVLink."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from controller.core.cluster.node_table import Bools
from wire.agent.reports import GpuFacts

Group = frozenset[int]


class GpuTopology:
    """The groups of GPUs of every host: GPUs on one NUMA node, GPUs linked by NVLink, or GPUs with both
    properties. A GPU is identified by its index on the host.

    An NVLink group is a set of GPUs in which all pairs are linked. No other GPU of the host can be added to
    the set.
    """

    def __init__(self, hosts: Sequence[Sequence[GpuFacts]], width: int) -> None:
        self._width = width
        self._numa = [_by_numa(tuple(gpu.numa for gpu in gpus)) for gpus in hosts]
        self._linked = [_cliques(tuple((gpu.index, gpu.links) for gpu in gpus)) for gpus in hosts]
        self._made: dict[tuple[bool, bool], Bools] = {}

    def groups(self, numa: bool, linked: bool) -> Bools:
        """Return an array by host, group and GPU. It is True if the GPU is in the group. With `numa`, the
        GPUs of a group are on one NUMA node. With `linked`, all GPUs of a group are linked by NVLink.

        All hosts have the same number of groups in the result. Hosts with fewer groups have empty groups at
        the end.
        """
        found = self._made.get((numa, linked))
        if found is None:
            found = self._made[numa, linked] = self._make(numa, linked)
        return found

    def _make(self, numa: bool, linked: bool) -> Bools:
        if numa and linked:
            wanted = [
                tuple(dict.fromkeys(one & other for one in ones for other in others if one & other))
                for ones, others in zip(self._numa, self._linked, strict=True)
            ]
        else:
            wanted = self._numa if numa else self._linked
        most = max(map(len, wanted), default=0)
        made = np.zeros((len(wanted), most, self._width), dtype=np.bool_)
        for row, groups in enumerate(wanted):
            for at, group in enumerate(groups):
                made[row, at, list(group)] = True
        return made


@lru_cache(maxsize=1_024)
def _by_numa(numbers: tuple[int, ...]) -> tuple[Group, ...]:
    return tuple(
        frozenset(slot for slot, other in enumerate(numbers) if other == number)
        for number in sorted(set(numbers))
    )


@lru_cache(maxsize=1_024)
def _cliques(links: tuple[tuple[int, tuple[int, ...]], ...]) -> tuple[Group, ...]:
    """Return all maximal cliques of linked GPUs (sets in which each pair is linked), found with the
    Bron-Kerbosch algorithm with a pivot.

    Both GPUs must report a link; otherwise the link does not count. Results are cached, because most hosts
    have equal links.
    """
    slots = {index: slot for slot, (index, _) in enumerate(links)}
    near = [{slots[other] for other in others if other in slots} for _, others in links]
    mutual = [{other for other in each if slot in near[other]} for slot, each in enumerate(near)]
    found: list[Group] = []

    def extend(chosen: frozenset[int], open_: set[int], done: set[int]) -> None:
        if not open_ and not done:
            found.append(chosen)
            return
        pivot = max(open_ | done, key=lambda slot: len(mutual[slot] & open_))
        for slot in sorted(open_ - mutual[pivot]):
            extend(chosen | {slot}, open_ & mutual[slot], done & mutual[slot])
            open_ = open_ - {slot}
            done = done | {slot}

    extend(frozenset(), set(range(len(links))), set())
    return tuple(sorted(found, key=sorted)) if links else ()
