"""What the agent wants of a source of GPUs. The sources: simulated.py, nvml.py, and none."""

from __future__ import annotations

from typing import Callable, Mapping, Protocol

from agent.loop import Loop
from wire.frames import AgentFrame, GpuFacts, GpuSample

Loads = Callable[[], Mapping[str, int]]
"""Which GPUs are held at the moment, and how many thousandths of each."""
Tell = Callable[[AgentFrame], None]

SAMPLE_S = 2.0


class UnknownGpus(ValueError):
    """A description of GPUs that cannot be read."""


class Gpus(Protocol):
    """The GPUs of a host: what they are, and readings as long as the agent runs."""

    facts: tuple[GpuFacts, ...]
    numa_nodes: int

    def watch(self, loop: Loop, loads: Loads, tell: Tell) -> None:
        """Report readings that changed noticeably, and GPUs that fell ill."""


class NoGpus:
    """A host without GPUs."""

    facts: tuple[GpuFacts, ...] = ()
    numa_nodes = 0

    def watch(self, loop: Loop, loads: Loads, tell: Tell) -> None:
        """There is nothing to see."""


class Readings:
    """The last readings told; passes on only those that a person would call different."""

    def __init__(self) -> None:
        self._told: dict[str, GpuSample] = {}

    def changed(self, samples: list[GpuSample]) -> tuple[GpuSample, ...]:
        """Those worth telling, remembered as told."""
        news = tuple(each for each in samples if _differs(each, self._told.get(each.uuid)))
        self._told.update((each.uuid, each) for each in news)
        return news


def _differs(new: GpuSample, old: GpuSample | None) -> bool:
    return (
        old is None
        or abs(new.utilisation - old.utilisation) >= 5
        or abs(new.memory_used_mib - old.memory_used_mib) >= 256
        or abs(new.power_w - old.power_w) >= 15
        or abs(new.temperature_c - old.temperature_c) >= 3
    )
