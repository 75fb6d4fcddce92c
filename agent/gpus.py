"""What the agent wants of a source of GPUs. The sources: simulated.py, nvml.py, and none."""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

from agent.holders import Holders
from agent.loop import Loop
from wire.frames import AgentFrame, GpuChecked, GpuFacts, GpuProcess, GpuReset, GpuSample

Tell = Callable[[AgentFrame], None]
Measure = Callable[[list[GpuSample]], None]
"""Hears every reading, also those that are not worth telling."""
Then = Callable[[str], None]
"""Hears why GPUs cannot be handed over; nothing if they can."""

SAMPLE_S = 2.0
NOT_THERE = "this host has no such GPU"


def ignore(_samples: list[GpuSample]) -> None:
    """Nobody keeps account."""


class UnknownGpus(ValueError):
    """A description of GPUs that cannot be read."""


class Gpus(Protocol):
    """The GPUs of a host: what they are, and readings as long as the agent runs."""

    facts: tuple[GpuFacts, ...]
    numa_nodes: int
    driver: str
    cuda: str
    real: bool
    """Are they devices that a container could be given?"""

    def watch(self, loop: Loop, holders: Holders, tell: Tell, measure: Measure = ignore) -> None:
        """Report readings that changed noticeably, and GPUs that fell ill."""

    def prove(self, uuids: Sequence[str], then: Then) -> None:
        """Look whether nobody is on these GPUs and nothing is left in them; say why not, or nothing."""

    def check(self, uuid: str, after_s: float) -> None:
        """Look at a GPU in so many seconds, and tell whether it is well; the latest order counts."""

    def reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        """Reset a GPU in so many seconds, if nobody is on it then, and tell how it went."""


class NoGpus:
    """A host without GPUs."""

    facts: tuple[GpuFacts, ...] = ()
    numa_nodes = 0
    driver = cuda = ""
    real = False

    def watch(
        self,
        loop: Loop,  # noqa: ARG002
        holders: Holders,  # noqa: ARG002
        tell: Tell,
        measure: Measure = ignore,  # noqa: ARG002
    ) -> None:
        """There is nothing to see."""
        self._tell = tell

    def prove(self, uuids: Sequence[str], then: Then) -> None:  # noqa: ARG002 - the launch will tell
        """Nobody is on what is not there."""
        then("")

    def check(self, uuid: str, after_s: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        """What is not there is not well."""
        self._tell(GpuChecked(uuid, False, NOT_THERE))

    def reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002 - as above
        """Nor can it be reset."""
        self._tell(GpuReset(uuid, False, NOT_THERE))


class Readings:
    """The last readings told; passes on only those that a person would call different."""

    def __init__(self) -> None:
        self._told: dict[str, GpuSample] = {}
        self._processes: tuple[GpuProcess, ...] = ()

    def changed(self, samples: list[GpuSample]) -> tuple[GpuSample, ...]:
        """Those worth telling, remembered as told."""
        news = tuple(each for each in samples if _differs(each, self._told.get(each.uuid)))
        self._told.update((each.uuid, each) for each in news)
        return news

    def others(self, processes: tuple[GpuProcess, ...]) -> bool:
        """Are other processes there than were told, or do they hold much more or less memory?"""
        differ = [(each.uuid, each.pid, each.job) for each in processes] != [
            (each.uuid, each.pid, each.job) for each in self._processes
        ] or any(
            abs(each.memory_mib - self._processes[place].memory_mib) >= 256
            for place, each in enumerate(processes)
        )
        if differ:
            self._processes = processes
        return differ


def _differs(new: GpuSample, old: GpuSample | None) -> bool:
    return (
        old is None
        or abs(new.utilisation - old.utilisation) >= 5
        or abs(new.memory_used_mib - old.memory_used_mib) >= 256
        or abs(new.power_w - old.power_w) >= 15
        or abs(new.temperature_c - old.temperature_c) >= 3
        or _marks(new) != _marks(old)
    )


def _marks(sample: GpuSample) -> tuple[object, ...]:
    """What seldom changes, and is worth telling whenever it does."""
    return (
        sample.throttle,
        sample.ecc_corrected,
        sample.ecc_uncorrected,
        sample.rows_remapped,
        sample.links_up,
        sample.links,
    )
