"""The free resources of one node as plain numbers. `row_trial` writes these numbers to the node table for a
short time. Filters can then check a node as it will be at a later time.

The free part of each GPU is an element of a list and not of a numpy array, because backfill reads single
elements very often. Reading one element of an array takes ten times as long as reading one of a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import ge

from controller.core.cluster.gpus.gpu_requirements import GpuNeeds
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import ABSENT, NodeTable
from controller.core.cluster.nodes import Nodes
from controller.core.model.allocation import Allocation
from controller.core.model.request import PerNodeRequest


@dataclass(slots=True)
class FreeResources:
    """The free resources of one node. `gpus` contains the free thousandths of each GPU. `models` contains the
    type of each GPU, as an index in `NodeTable.gpu_types`.
    """

    cpu_milli: int
    memory_mib: int
    gpus: list[int]
    models: list[int]
    scratch_mib: int = 0

    def add(self, node: Node, allocation: Allocation, sign: int) -> None:
        """Add the resources of an allocation (`sign` 1), or subtract them (`sign` -1)."""
        self.cpu_milli += sign * allocation.cpu_milli
        self.memory_mib += sign * allocation.memory_mib
        self.scratch_mib += sign * allocation.scratch_mib
        for hold in allocation.gpus:
            slot = node.slots.get(hold.uuid)
            if slot is not None and self.gpus[slot] != ABSENT:
                self.gpus[slot] += sign * hold.milli

    def fits(self, part: PerNodeRequest, needs: GpuNeeds, row: int) -> bool:
        """Return whether these free resources are enough for the request on one node. `needs` are the GPU
        needs of the request; `row` is the node's row in the node table.
        """
        if self.cpu_milli < part.cpu_milli or self.memory_mib < part.memory_mib:
            return False
        if part.scratch_mib > self.scratch_mib:
            return False
        return needs.met_by(self.gpus, self.models, row)

    def copy(self) -> FreeResources:
        return FreeResources(self.cpu_milli, self.memory_mib, self.gpus.copy(), self.models, self.scratch_mib)

    def covers(self, other: FreeResources) -> bool:
        """Return whether this node has at least as much of each resource free as `other`."""
        return (
            self.cpu_milli >= other.cpu_milli
            and self.memory_mib >= other.memory_mib
            and self.scratch_mib >= other.scratch_mib
            and all(map(ge, self.gpus, other.gpus))
        )

    def minimum(self, other: FreeResources) -> FreeResources:
        """Return, for each resource, the smaller of the free amounts here and in `other`."""
        return FreeResources(
            min(self.cpu_milli, other.cpu_milli),
            min(self.memory_mib, other.memory_mib),
            list(map(min, self.gpus, other.gpus)),
            self.models,
            min(self.scratch_mib, other.scratch_mib),
        )


def free_on(nodes: Nodes, row: int) -> FreeResources:
    """Return the resources that are free now on the node in this row of the node table."""
    columns = nodes.columns
    cpu, memory = columns.cpu_free.item(row), columns.memory_free.item(row)
    scratch = columns.scratch_free.item(row)
    if not columns.gpu_count.item(row):
        return FreeResources(cpu, memory, [], [], scratch)
    return FreeResources(
        cpu, memory, columns.gpu_free[row].tolist(), columns.gpu_model[row].tolist(), scratch
    )


@contextmanager
def row_trial(columns: NodeTable, row: int, free: FreeResources) -> Iterator[None]:
    """Write the free resources `free` of one node to the node table for the duration of a `with` block.
    Filters then check the node as if these resources were free.

    The old values are restored at the end of the block, even after an exception. During the block, no other
    code may read or write the row.
    """
    before = columns.cpu_free[row], columns.memory_free[row], columns.scratch_free[row]
    gpus_before = columns.gpu_free[row].copy()
    columns.cpu_free[row], columns.memory_free[row] = free.cpu_milli, free.memory_mib
    columns.scratch_free[row] = free.scratch_mib
    if free.gpus:
        columns.gpu_free[row] = free.gpus
    try:
        yield
    finally:
        columns.cpu_free[row], columns.memory_free[row], columns.scratch_free[row] = before
        columns.gpu_free[row] = gpus_before
