"""The interface of GPU sources. Implementations: nvml.py, late_driver.py, simulated.py, and `NoGpus`."""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

from agent.event_loop import EventLoop
from agent.gpus.process_owners import ListHolders
from wire.agent.frames import AgentFrame, GpuChecked, GpuFacts, GpuProcess, GpuReset, GpuSample

SendFrame = Callable[[AgentFrame], None]
ReadingsCallback = Callable[[list[GpuSample], Sequence[GpuProcess]], None]
"""Called with every reading and all processes on the GPUs, including those that are not sent to the
controller."""
ReasonCallback = Callable[[str], None]
"""Called with the reason why GPUs are not clean, or with an empty string if they are."""

SAMPLE_INTERVAL_S = 2.0
IDLE_PERCENT = 5
"""A GPU below this utilisation is idle for the controller (controller/watchers/idle_gpus.py)."""
NO_SUCH_GPU = "this host has no such GPU"


def ignore_readings(_samples: list[GpuSample], _processes: Sequence[GpuProcess]) -> None:
    """A callback that ignores the readings."""


class GpusUnknown(ValueError):
    """The GPUs cannot be listed. The message is the reason."""


class GpuSource(Protocol):
    """The GPUs of a host: their facts, readings, health and resets."""

    facts: tuple[GpuFacts, ...]
    numa_nodes: int
    driver: str
    cuda: str
    real: bool
    """True for real GPUs, which can be passed to a container."""

    def watch(
        self,
        loop: EventLoop,
        holders: ListHolders,
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,
    ) -> None:
        """Begin to send readings that have changed noticeably and trouble of GPUs. `send` sends a frame."""

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:
        """Call `then` with an empty string when these GPUs have no processes and no used memory. If they do
        not become clean in time, call it with the reason.
        """

    def schedule_check(self, uuid: str, after_s: float) -> None:
        """Check a GPU in `after_s` seconds and send the result. A later check or reset replaces this
        order.
        """

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        """Reset a GPU in `after_s` seconds, if no attempt holds it then, and send the result."""


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
        """Call `then` at once. The launch fails later, because the host has no GPUs."""
        then("")

    def schedule_check(self, uuid: str, after_s: float) -> None:  # noqa: ARG002
        """Send that there is no such GPU."""
        self._send(GpuChecked(uuid, False, NO_SUCH_GPU))

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002
        """Send that there is no such GPU."""
        self._send(GpuReset(uuid, False, NO_SUCH_GPU))


class ReportedReadings:
    """Stores the readings that were sent last, and filters out readings that differ little from them."""

    def __init__(self) -> None:
        self._sent: dict[str, GpuSample] = {}
        self._processes: tuple[GpuProcess, ...] = ()

    def changed(self, samples: list[GpuSample]) -> tuple[GpuSample, ...]:
        """The samples that differ noticeably from those sent last. They are stored as sent."""
        changed = tuple(each for each in samples if _differs(each, self._sent.get(each.uuid)))
        self._sent.update((each.uuid, each) for each in changed)
        return changed

    def processes_changed(self, processes: tuple[GpuProcess, ...]) -> bool:
        """Whether the processes differ noticeably from those sent last. If so, they are stored as sent."""
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
    """The values that are sent after every change, however small."""
    return (
        sample.throttle,
        sample.ecc_corrected,
        sample.ecc_uncorrected,
        sample.rows_remapped,
        sample.links_up,
        sample.links,
        sample.remap_pending,
    )
