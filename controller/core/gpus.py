"""Which GPUs of a node a part gets: one NUMA node before two, linked before not, the tightest place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from controller.core.nodes import Node
from controller.core.requests import Part
from controller.core.room import Room
from wire.frames import GpuFacts, GpuHold
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


def choose_gpus(node: Node, room: Room, part: Part, codes: frozenset[int], pick: Pick) -> Choice:
    """The GPUs for a part on a node with that room; `codes` are those of the models it accepts."""
    if not part.gpus and not part.share:
        return NO_GPUS
    free = room.gpus
    slots = range(len(node.facts.gpus))
    allowed = [slot for slot in slots if room.models[slot] in codes] if part.models else list(slots)
    if part.share:
        return _choice(node, [pick([slot for slot in allowed if free[slot] >= part.share])], part.share)
    whole = [slot for slot in allowed if free[slot] == WHOLE_GPU]
    return _choice(node, _choose_whole(node.facts.gpus, whole, part.gpus), WHOLE_GPU)


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
