"""The interface of GPU sources. Implementations: nvml.py, late_driver.py, simulated.py, and `NoGpus`."""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

from agent.event_loop import EventLoop
from agent.gpus.process_owners import ListHolders
from wire.agent.frames import AgentFrame, GpuChecked, GpuFacts, GpuProcess, GpuReset, GpuSample

SendFrame = Callable[[AgentFrame], None]
ReadingsCallback = Callable[[list[GpuSample], Sequence[GpuProcess]], None]
"""Called with every reading and all processes on the GPUs, also with those that are not reported."""
ReasonCallback = Callable[[str], None]
"""Called with the reason why GPUs are not clean; with an empty string if they are."""

SAMPLE_INTERVAL_S = 2.0
IDLE_PERCENT = 5
"""The controller judges by this utilisation whether a GPU is idle (controller/watchers/idle_gpus.py)."""
NO_SUCH_GPU = "this host has no such GPU"


def ignore_readings(_samples: list[GpuSample], _processes: Sequence[GpuProcess]) -> None:
    """Do nothing with readings."""


class GpusUnknown(ValueError):
    """The GPUs cannot be found; the message says why."""


class GpuSource(Protocol):
    """The GPUs of a host: their facts, readings, health and resets."""

    facts: tuple[GpuFacts, ...]
    numa_nodes: int
    driver: str
    cuda: str
    real: bool
    """Whether they are devices that a container can be given."""

    def watch(
        self,
        loop: EventLoop,
        holders: ListHolders,
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,
    ) -> None:
        """Start to send readings that changed noticeably and trouble of GPUs, with `send`."""

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:
        """Call `then` when these GPUs have no processes and no used memory, or with the reason why not."""

    def schedule_check(self, uuid: str, after_s: float) -> None:
        """Check a GPU in `after_s` seconds and send the result. A later order replaces this one."""

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        """Reset a GPU in `after_s` seconds, if it is idle then, and send the result."""


class NoGpus:
    """A host without GPUs."""

    facts: tuple[GpuFacts, ...] = ()
    numa_nodes = 0
    driver = cuda = ""
    real = False

    def watch(
        self,
        loop: EventLoop,  # noqa: ARG002
        holders: ListHolders,  # noqa: ARG002
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,  # noqa: ARG002
    ) -> None:
        """Do nothing: there are no readings."""
        self._send = send

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:  # noqa: ARG002
        """Call `then` at once, because the launch fails anyway."""
        then("")

    def schedule_check(self, uuid: str, after_s: float) -> None:  # noqa: ARG002
        """Send that there is no such GPU."""
        self._send(GpuChecked(uuid, False, NO_SUCH_GPU))

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002
        """Send that there is no such GPU."""
        self._send(GpuReset(uuid, False, NO_SUCH_GPU))


class ReportedReadings:
    """The readings that were last sent. Filters those that differ too little."""

    def __init__(self) -> None:
        self._sent: dict[str, GpuSample] = {}
        self._processes: tuple[GpuProcess, ...] = ()

    def changed(self, samples: list[GpuSample]) -> tuple[GpuSample, ...]:
        """The samples that differ noticeably from the last ones sent; they count as sent from now on."""
        changed = tuple(each for each in samples if _differs(each, self._sent.get(each.uuid)))
        self._sent.update((each.uuid, each) for each in changed)
        return changed

    def processes_changed(self, processes: tuple[GpuProcess, ...]) -> bool:
        """Whether the processes differ noticeably from those last sent; they count as sent then."""
        differ = [(each.uuid, each.pid, each.job) for each in processes] != [
            (each.uuid, each.pid, each.job) for each in self._processes
        ] or any(
            abs(each.memory_mib - self._processes[index].memory_mib) >= 256
            for index, each in enumerate(processes)
        )
        if differ:
            self._processes = processes
        return differ


def _differs(new: GpuSample, old: GpuSample | None) -> bool:
    return (
        old is None
        or abs(new.utilisation - old.utilisation) >= IDLE_PERCENT
        or (new.utilisation < IDLE_PERCENT) != (old.utilisation < IDLE_PERCENT)
        or abs(new.memory_used_mib - old.memory_used_mib) >= 256
        or abs(new.power_w - old.power_w) >= 15
        or abs(new.temperature_c - old.temperature_c) >= 3
        or _rarely_changing(new) != _rarely_changing(old)
    )


def _rarely_changing(sample: GpuSample) -> tuple[object, ...]:
    """The values of which every change is sent."""
    return (
        sample.throttle,
        sample.ecc_corrected,
        sample.ecc_uncorrected,
        sample.rows_remapped,
        sample.links_up,
        sample.links,
        sample.remap_pending,
    )
