"""Nodes with the CPU, memory and scratch free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part
from wire.text import counted, memory


@dataclass(frozen=True, slots=True)
class Capacity:
    """Keeps nodes with enough free CPU and memory, and scratch where that is asked for."""

    name: ClassVar[str] = "capacity"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where all of it fits."""
        fits: Bools = (nodes.cpu_free[rows] >= part.cpu_milli) & (nodes.memory_free[rows] >= part.memory_mib)
        return fits & (nodes.scratch_free[rows] >= part.scratch_mib) if part.scratch_mib else fits

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return True

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        cpus, mib = counted(part.cpu_milli / 1000, "CPU"), memory(part.memory_mib)
        if part.scratch_mib:
            return f"less than {cpus}, {mib} of memory or {memory(part.scratch_mib)} of scratch free"
        return f"less than {cpus} or {mib} of memory free"
