"""The resources that an attempt of a job holds on one node."""

from __future__ import annotations

from dataclasses import dataclass

from wire.agent.orders import GpuHold


@dataclass(frozen=True, slots=True)
class Allocation:
    """The resources that an attempt holds on one node."""

    node: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[GpuHold, ...] = ()
    numa: tuple[int, ...] = ()
    scratch_mib: int = 0
