"""Nodes with the GPUs free: whole ones, shares, MIG instances; of the right kind, connected as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Bools, Columns, Rows
from controller.core.needs import needs_of
from controller.core.requests import Part
from wire.gpuwish import REQUIRE
from wire.spec import gpus_text
from wire.text import memory
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Gpu:
    """Keeps nodes with enough healthy, free GPUs of what the part accepts."""

    name: ClassVar[str] = "gpu"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where the GPUs fit."""
        return needs_of(part, nodes).keep(nodes, rows)

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return part.wants_gpus

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        kind = f"{' or '.join(part.models)} " if part.models else ""
        kind += f"MIG {part.gpu.mig} " if part.gpu is not None and part.gpu.mig else ""
        if part.gpu is not None and part.gpu.memory_mib:
            return f"no {kind}GPU with {memory(part.gpu.memory_mib)} of its memory free{_which(part)}"
        if part.share:
            return f"no {kind}GPU with {gpus_text(part.share / WHOLE_GPU)} free{_which(part)}"
        lacking = f"no free {kind}GPU" if part.gpus == 1 else f"fewer than {part.gpus} free {kind}GPUs"
        return lacking + _which(part)


def _which(part: Part) -> str:
    """What else the GPUs must be."""
    wish = part.gpu
    if wish is None:
        return ""
    said = [f" of {memory(wish.least_mib)} or more"] if wish.least_mib else []
    said += [f" of compute capability {wish.compute} or newer"] if wish.compute else []
    if part.gpus > 1:
        said += [" at one NUMA node"] if wish.numa == REQUIRE else []
        said += [", all linked by NVLink"] if wish.nvlink == REQUIRE else []
    return "".join(said)
