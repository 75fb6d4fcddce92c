"""Writes the row of a node in the node table."""

from __future__ import annotations

from controller.core.cluster.gpus.gpu_requirements import GpuType
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import ABSENT, NodeTable
from wire.names import WHOLE_GPU, GpuHealth


def write_row(columns: NodeTable, node: Node) -> None:
    """Write the labels, the hardware, the state and the free resources of the node in its row."""
    row, facts = node.row, node.facts
    node.slots = {gpu.uuid: slot for slot, gpu in enumerate(facts.gpus)}
    columns.labels[row] = {**node.effective_labels, "node": node.name}
    columns.taints[row] = node.taints
    columns.runtimes[row] = facts.runtime
    columns.image_gpus[row] = facts.image_gpus
    columns.last_placement[row] = node.last_placement
    columns.open[row] = node.up and not node.drained
    cpu_milli, memory_mib = node.overcommit.of(facts)
    columns.cpu_total[row] = cpu_milli
    columns.memory_total[row] = memory_mib
    columns.scratch_total[row] = facts.storage_mib
    columns.gpu_count[row] = len(facts.gpus)
    columns.gpu_free[row] = ABSENT
    columns.gpu_model[row] = ABSENT
    for slot, gpu in enumerate(facts.gpus):
        kind = GpuType(gpu.model, gpu.memory_mib, gpu.compute, gpu.mig)
        if kind not in columns.gpu_types:
            columns.gpu_types.append(kind)
            columns.models.append(gpu.model)
        columns.gpu_model[row, slot] = columns.gpu_types.index(kind)
        if node.health_of(gpu) is GpuHealth.OK:
            columns.gpu_free[row, slot] = WHOLE_GPU
    write_free(columns, node)


def write_free(columns: NodeTable, node: Node) -> None:
    """Write the free resources of the node. The total resources in the row, and the GPUs that are marked
    ABSENT in `gpu_free`, must already be up to date.
    """
    row, slots = node.row, node.slots
    cpu_milli, memory_mib = columns.cpu_total.item(row), columns.memory_total.item(row)
    scratch_mib = columns.scratch_total.item(row)
    # Change the numbers in a list and not in the numpy array, because reading or writing one element of an
    # array takes ten times as long.
    gpus = [ABSENT if free == ABSENT else WHOLE_GPU for free in columns.gpu_free[row].tolist()]
    for allocation in node.unavailable():
        cpu_milli -= allocation.cpu_milli
        memory_mib -= allocation.memory_mib
        scratch_mib -= allocation.scratch_mib
        for hold in allocation.gpus:
            slot = slots.get(hold.uuid)
            if slot is not None and gpus[slot] != ABSENT:
                gpus[slot] -= hold.milli
    columns.cpu_free[row], columns.memory_free[row] = cpu_milli, memory_mib
    columns.scratch_free[row], columns.gpu_free[row] = scratch_mib, gpus
