"""The `capacity` filter keeps nodes with enough free CPU, memory and scratch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest
from wire.text import counted, memory


@dataclass(frozen=True, slots=True)
class CapacityFilter:
    """Scratch is checked only for jobs that ask for it."""

    name: ClassVar[str] = "capacity"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True where all three fit."""
        fits: Bools = (nodes.cpu_free[rows] >= part.cpu_milli) & (nodes.memory_free[rows] >= part.memory_mib)
        return fits & (nodes.scratch_free[rows] >= part.scratch_mib) if part.scratch_mib else fits

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the request ask for anything that this filter checks?"""
        return True

    def shortage(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows, *, idle: bool) -> str:
        """Which of the three these nodes lack, now or (`idle`) even without jobs."""
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
        """The reason shown for a node that this filter rejected."""
        cpus, mib = counted(part.cpu_milli / 1000, "CPU"), memory(part.memory_mib)
        if part.scratch_mib:
            return f"less than {cpus}, {mib} of memory or {memory(part.scratch_mib)} of scratch free"
        return f"less than {cpus} or {mib} of memory free"
