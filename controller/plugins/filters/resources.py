"""The filters that every configuration needs: `available`, `capacity` and `gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.job.placement.gpu_requirements import REQUIRE
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU
from wire.text import counted, memory


@dataclass(frozen=True, slots=True)
class AvailableFilter:
    """The `available` filter keeps nodes that are up and not drained."""

    name: ClassVar[str] = "available"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        return nodes.open[rows]

    def concerns(self, part: PerNodeRequest) -> bool:
        return True

    def explain(self, part: PerNodeRequest) -> str:
        return "away or drained"


@dataclass(frozen=True, slots=True)
class CapacityFilter:
    """The `capacity` filter keeps nodes with enough free CPU, memory and scratch for the job.

    Scratch is checked only for jobs with a scratch request.
    """

    name: ClassVar[str] = "capacity"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        fits: Bools = (nodes.cpu_free[rows] >= part.cpu_milli) & (nodes.memory_free[rows] >= part.memory_mib)
        return fits & (nodes.scratch_free[rows] >= part.scratch_mib) if part.scratch_mib else fits

    def concerns(self, part: PerNodeRequest) -> bool:
        return True

    def shortage(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows, *, idle: bool) -> str:
        """Return a text that names the resources which at least one of these nodes lacks, such as "less than
        8 CPUs free".

        `idle` is True if `nodes` is a table without running jobs. The text then ends with "in all" in place
        of "free".
        """
        short = [
            f"{amount} {what}"
            for amount, what, free, asked in (
                (counted(part.cpu_milli / 1000, "CPU"), "", nodes.cpu_free, part.cpu_milli),
                (memory(part.memory_mib), "of memory ", nodes.memory_free, part.memory_mib),
                (memory(part.scratch_mib), "of scratch ", nodes.scratch_free, part.scratch_mib),
            )
            if (free[rows] < asked).any()
        ]
        return f"less than {' or '.join(each.strip() for each in short)} {'in all' if idle else 'free'}"

    def explain(self, part: PerNodeRequest) -> str:
        cpus, mib = counted(part.cpu_milli / 1000, "CPU"), memory(part.memory_mib)
        if part.scratch_mib:
            return f"less than {cpus}, {mib} of memory or {memory(part.scratch_mib)} of scratch free"
        return f"less than {cpus} or {mib} of memory free"


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """The `gpu` filter keeps nodes with enough free GPUs that meet the job's requirements. The GPUs can be
    whole GPUs, a part of one GPU, or MIG instances. Unhealthy GPUs do not count.

    A job without GPUs that names GPU models, such as a job of `sbatch --constraint=a100`, gets a node that
    has a GPU of such a model, whether the GPU is free or not.
    """

    name: ClassVar[str] = "gpu"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        if not part.wants_gpus:
            codes = nodes.model_codes(part.models)
            return np.asarray(np.isin(nodes.gpu_model[rows], codes).any(axis=1), dtype=np.bool_)
        return gpu_needs_of(part, nodes).nodes_fitting(nodes, rows)

    def concerns(self, part: PerNodeRequest) -> bool:
        return part.wants_gpus or bool(part.models)

    def shortage(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows, *, idle: bool) -> str:
        """Return a text about the GPUs that these nodes lack, such as "fewer than 4 free GPUs".

        `idle` is True if `nodes` is a table without running jobs. The text then leaves out the word "free".
        """
        reason = self.explain(part)
        if not idle:
            return reason
        return reason.replace("of its memory free", "of memory").replace(" free ", " ").removesuffix(" free")

    def explain(self, part: PerNodeRequest) -> str:
        kind = f"{' or '.join(part.models)} " if part.models else ""
        if not part.wants_gpus:
            return f"no {kind}GPU"
        kind += f"MIG {part.gpu.mig} " if part.gpu is not None and part.gpu.mig else ""
        if part.gpu is not None and part.gpu.memory_mib:
            return f"no {kind}GPU with {memory(part.gpu.memory_mib)} of its memory free{_which(part)}"
        if part.share:
            return f"no {kind}GPU with {gpus_text(part.share / WHOLE_GPU)} free{_which(part)}"
        lacking = f"no free {kind}GPU" if part.gpus == 1 else f"fewer than {part.gpus} free {kind}GPUs"
        return lacking + _which(part)


def _which(part: PerNodeRequest) -> str:
    """Return the end of a sentence about GPUs that names the other requirements of the job, such as memory
    and NVLink.
    """
    wish = part.gpu
    if wish is None:
        return ""
    said = [f" of {memory(wish.least_mib)} or more"] if wish.least_mib else []
    said += [f" of compute capability {wish.compute} or newer"] if wish.compute else []
    if part.gpus > 1:
        said += [" at one NUMA node"] if wish.numa == REQUIRE else []
        said += [", all linked by NVLink"] if wish.nvlink == REQUIRE else []
    return "".join(said)
