"""What one node has free, as plain numbers: for looking ahead in time, where columns would be too many."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.columns import ABSENT
from controller.core.events import Allocation
from controller.core.needs import Needs
from controller.core.nodes import Node, Nodes
from controller.core.requests import Part


@dataclass(slots=True)
class Room:
    """Free CPU, memory and GPU-milli of one node at some moment."""

    cpu_milli: int
    memory_mib: int
    gpus: list[int]
    models: list[int]
    scratch_mib: int = 0

    def give(self, node: Node, allocation: Allocation, sign: int) -> None:
        """Put an allocation back (1) or take it out (-1)."""
        self.cpu_milli += sign * allocation.cpu_milli
        self.memory_mib += sign * allocation.memory_mib
        self.scratch_mib += sign * allocation.scratch_mib
        for hold in allocation.gpus:
            slot = node.slots.get(hold.uuid)
            if slot is not None and self.gpus[slot] != ABSENT:
                self.gpus[slot] += sign * hold.milli

    def holds(self, part: Part, needs: Needs, row: int) -> bool:
        """Does the part fit? `needs` are those of the part, `row` is the node's."""
        if self.cpu_milli < part.cpu_milli or self.memory_mib < part.memory_mib:
            return False
        if part.scratch_mib > self.scratch_mib:
            return False
        return needs.met(self.gpus, self.models, row)

    def twin(self) -> Room:
        """The same, to be changed by itself."""
        return Room(self.cpu_milli, self.memory_mib, self.gpus.copy(), self.models, self.scratch_mib)

    def least(self, other: Room) -> Room:
        """What is free in both."""
        return Room(
            min(self.cpu_milli, other.cpu_milli),
            min(self.memory_mib, other.memory_mib),
            [min(pair) for pair in zip(self.gpus, other.gpus, strict=True)],
            self.models,
            min(self.scratch_mib, other.scratch_mib),
        )


def room_of(nodes: Nodes, row: int) -> Room:
    """What the node in this row has free now."""
    columns = nodes.columns
    cpu, memory = columns.cpu_free.item(row), columns.memory_free.item(row)
    scratch = columns.scratch_free.item(row)
    if not columns.gpu_count.item(row):
        return Room(cpu, memory, [], [], scratch)
    return Room(cpu, memory, columns.gpu_free[row].tolist(), columns.gpu_model[row].tolist(), scratch)
