"""Nodes with the CPU and memory free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part
from wire.text import counted, memory


@dataclass(frozen=True, slots=True)
class Capacity:
    """Keeps nodes with enough free CPU and memory."""

    name: ClassVar[str] = "capacity"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where both fit."""
        return (nodes.cpu_free[rows] >= part.cpu_milli) & (nodes.memory_free[rows] >= part.memory_mib)

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return True

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        return (
            f"less than {counted(part.cpu_milli / 1000, 'CPU')} or {memory(part.memory_mib)} of memory free"
        )
