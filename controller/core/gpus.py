"""Which GPUs of a node a part gets: one NUMA node before two, linked before not, the tightest place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from controller.core.columns import Columns
from controller.core.needs import needs_of
from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.room import Room
from wire.frames import GpuFacts, GpuHold
from wire.gpuwish import REQUIRE
from wire.words import WHOLE_GPU

ONE_NODE, NUMA_LOCAL, LINKED, SEVERAL_NODES = 100, 30, 20, 50
"""Placement quality: what a good place adds up to."""


@dataclass(frozen=True, slots=True)
class Choice:
    """GPUs of one node, with the NUMA nodes they hang on and whether all of them are linked."""

    gpus: tuple[GpuHold, ...]
    numa: tuple[int, ...]
    linked: bool


NO_GPUS = Choice((), (), False)


Pick = Callable[[Sequence[int]], int]
"""Which of these GPUs gives a share."""


def choose_gpus(node: Node, room: Room, part: Part, columns: Columns, pick: Pick) -> Choice:
    """The GPUs for a part on a node with that room."""
    if not part.wants_gpus:
        return NO_GPUS
    needs = needs_of(part, columns)
    fitting = needs.fitting(room.gpus, room.models)
    if not part.gpus:
        slot = pick(fitting)
        return _choice(node, [slot], needs.of(room.models[slot]))
    gpus = node.facts.gpus
    for group in _wanted(part, columns, node.row):
        inside = [slot for slot in fitting if group[slot]]
        if len(inside) >= part.gpus:
            return _choice(node, _choose_whole(gpus, inside, part.gpus), WHOLE_GPU)
    return _choice(node, _choose_whole(gpus, fitting, part.gpus), WHOLE_GPU)


def _wanted(part: Part, columns: Columns, row: int) -> Iterator[list[bool]]:
    """Groups of GPUs that would please, those that please most first, and among these the smallest."""
    wish = part.gpu
    if wish is None or part.gpus < 2 or not (wish.numa or wish.nvlink):
        return
    must = (wish.numa == REQUIRE, wish.nvlink == REQUIRE)
    best = (bool(wish.numa), bool(wish.nvlink))
    for numa, linked in dict.fromkeys((best, (must[0], best[1]), (best[0], must[1]), must)):
        if numa or linked:
            groups = columns.groups(numa, linked)[row].tolist()
            yield from sorted(groups, key=sum)


def _choice(node: Node, slots: Sequence[int], milli: int) -> Choice:
    gpus = [node.facts.gpus[slot] for slot in slots]
    return Choice(
        gpus=tuple(GpuHold(gpu.uuid, milli) for gpu in gpus),
        numa=tuple(sorted({gpu.numa for gpu in gpus})),
        linked=_linked(gpus),
    )


def _linked(gpus: Sequence[GpuFacts]) -> bool:
    return all(right.index in left.links for left, right in combinations(gpus, 2))


def _choose_whole(gpus: Sequence[GpuFacts], free: list[int], count: int) -> list[int]:
    by_numa: dict[int, list[int]] = {}
    for slot in free:
        by_numa.setdefault(gpus[slot].numa, []).append(slot)
    groups = sorted(by_numa.items(), key=lambda group: (len(group[1]), group[0]))
    chosen: list[int] = []
    while groups:
        need = count - len(chosen)
        tightest = next((slots for _, slots in groups if len(slots) >= need), None)
        if tightest is not None:
            return sorted(chosen + _choose_linked(gpus, tightest, need))
        chosen += groups.pop()[1]
    raise AssertionError(f"{count} GPUs asked of {len(free)} free ones: the filters let a wrong node pass")


def _choose_linked(gpus: Sequence[GpuFacts], slots: list[int], count: int) -> list[int]:
    """The first slots that are all linked with each other, else the first ones."""
    for start in range(len(slots) if count > 1 else 0):
        clique = [slots[start]]
        for slot in slots[start + 1 :]:
            if len(clique) < count and all(gpus[slot].index in gpus[other].links for other in clique):
                clique.append(slot)
        if len(clique) == count:
            return clique
    return slots[:count]


def quality_of(choices: Sequence[Choice]) -> int:
    """How good a placement is, 50 to 150; a job without GPUs has nothing to be far from."""
    if len(choices) > 1:
        return SEVERAL_NODES
    (choice,) = choices
    local = NUMA_LOCAL if len(choice.numa) <= 1 else 0
    return ONE_NODE + local + (LINKED if choice.linked or not choice.gpus else 0)
