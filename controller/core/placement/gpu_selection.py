"""Chooses the GPUs on one node for a request. It prefers GPUs that are close together: on one NUMA node, or
linked by NVLink. It keeps large groups of free GPUs whole for other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import NodeTable
from controller.core.model.request import PerNodeRequest
from wire.agent.orders import GpuHold
from wire.agent.reports import GpuFacts
from wire.job.placement.gpu_requirements import REQUIRE, GpuWish
from wire.names import WHOLE_GPU

ONE_NODE, NUMA_LOCAL, LINKED, SEVERAL_NODES = 100, 30, 20, 50
"""The points from which `quality_of` computes the quality of a placement."""


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """The GPUs for a job on one cluster node, their NUMA nodes, and whether NVLink connects all of these
    GPUs.
    """

    gpus: tuple[GpuHold, ...]
    numa: tuple[int, ...]
    linked: bool


NO_GPUS = GpuChoice((), (), False)


PickGpu = Callable[[Sequence[int]], int]
"""Chooses one of the given GPU indices for a job that requests a part of a GPU."""


def choose_gpus(
    node: Node,
    free: Sequence[int],
    kinds: Sequence[int],
    part: PerNodeRequest,
    columns: NodeTable,
    pick: PickGpu,
) -> GpuChoice:
    """Choose the GPUs for a request on a cluster node.

    `free` contains the free thousandths of each GPU. `kinds` contains the type of each GPU, as an index in
    `NodeTable.gpu_types`.

    1. For a part of a GPU, take the GPU that the picker plugin (`pick`) returns.
    2. If the job prefers or requires one NUMA node or NVLink, use only the GPUs of one group: the smallest
       group with enough free GPUs and all these properties. If there is none, drop preferred properties, but
       keep required properties.
    3. Among the NUMA nodes with enough of these GPUs, take GPUs of the NUMA node with the fewest. If no NUMA
       node has enough, take all GPUs of the NUMA node with the most, and continue with the other NUMA nodes.
       Within a NUMA node, prefer GPUs that are all linked with each other.

    Example: NUMA node 0 has 2 free GPUs, NUMA node 1 has 4. A request for 2 takes both of node 0; a request
    for 3 takes 3 of node 1.
    """
    needs, gpus, milli = gpu_needs_of(part, columns), node.facts.gpus, WHOLE_GPU
    slots = needs.fitting_slots(free, kinds)
    # Choose the one GPU for a job that requests a part of a GPU (step 1 of the docstring).
    if not part.gpus:
        slots = [pick(slots)]
        milli = needs.milli_of(kinds[slots[0]])
    else:
        if part.gpu is not None and part.gpus > 1:
            # Find the smallest suitable group of GPUs (step 2 of the docstring).
            for group in _wanted(part.gpu, columns, node.row):
                inside = [slot for slot in slots if group[slot]]
                if len(inside) >= part.gpus:
                    slots = inside
                    break
        # Choose GPUs by NUMA node (step 3 of the docstring).
        slots = _choose_whole(gpus, slots, part.gpus)
    chosen = [gpus[slot] for slot in slots]
    holds = [GpuHold(gpu.uuid, milli) for gpu in chosen]
    numa = sorted({gpu.numa for gpu in chosen})
    linked = all(right.index in left.links for left, right in combinations(chosen, 2))
    return GpuChoice(tuple(holds), tuple(numa), linked)


def _wanted(wish: GpuWish, columns: NodeTable, row: int) -> Iterator[list[bool]]:
    """Yield the groups of GPUs on a node that may provide the GPUs of the job. A group is on one NUMA node or
    linked by NVLink, as the job prefers or requires.

    Groups with all preferred properties come before other groups. Among groups with the same properties,
    small groups come before large groups. A group is a list with one entry for each GPU of the node: True if
    the GPU is in the group.
    """
    must = (wish.numa == REQUIRE, wish.nvlink == REQUIRE)
    best = (bool(wish.numa), bool(wish.nvlink))
    for numa, linked in dict.fromkeys((best, (must[0], best[1]), (best[0], must[1]), must)):
        if numa or linked:
            groups = columns.groups(numa, linked)[row].tolist()
            yield from sorted(groups, key=sum)


def _choose_whole(gpus: Sequence[GpuFacts], free: list[int], count: int) -> list[int]:
    by_numa: dict[int, list[int]] = {}
    for slot in free:
        by_numa.setdefault(gpus[slot].numa, []).append(slot)
    # Sort by the number of free GPUs, and equal numbers by the NUMA node.
    groups = sorted([by_numa[numa] for numa in sorted(by_numa)], key=len)
    chosen: list[int] = []
    while groups:
        need = count - len(chosen)
        for slots in groups:
            if len(slots) >= need:
                return sorted(chosen + (_choose_linked(gpus, slots, need) if need > 1 else slots[:1]))
        chosen += groups.pop()
    raise AssertionError(f"{count} GPUs asked of {len(free)} free ones: the filters let a wrong node pass")


def _choose_linked(gpus: Sequence[GpuFacts], slots: list[int], count: int) -> list[int]:
    """Return `count` GPUs of `slots` that are all linked by NVLink. If there is no such group, return the
    first `count` of `slots`.
    """
    for start in range(len(slots)):
        clique = [slots[start]]
        for slot in slots[start + 1 :]:
            if len(clique) < count and all(gpus[slot].index in gpus[other].links for other in clique):
                clique.append(slot)
        if len(clique) == count:
            return clique
    return slots[:count]


def quality_of(choices: Sequence[GpuChoice]) -> int:
    """Return the quality of a placement, from 50 to 150. It is higher for GPUs that are close together.

    The quality is 50 on several cluster nodes. On one cluster node the quality is 100, plus 30 if all GPUs
    are on one NUMA node, plus 20 if NVLink connects all GPUs. A job without GPUs has the quality 150 on one
    cluster node.
    """
    if len(choices) > 1:
        return SEVERAL_NODES
    (choice,) = choices
    local = NUMA_LOCAL if len(choice.numa) <= 1 else 0
    return ONE_NODE + local + (LINKED if choice.linked or not choice.gpus else 0)
