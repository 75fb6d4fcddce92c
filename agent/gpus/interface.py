"""The interface of GPU sources. A GPU source lists and reads the GPUs of a host. The sources are `NoGpus` in
this module, and nvml_gpus.py, late_driver.py and simulated.py.
"""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

from agent.event_loop import EventLoop
from agent.gpus.process_owners import ListHolders
from wire.agent.frames import AgentFrame
from wire.agent.reports import GpuChecked, GpuFacts, GpuProcess, GpuReset, GpuSample

SendFrame = Callable[[AgentFrame], None]
ReadingsCallback = Callable[[list[GpuSample], Sequence[GpuProcess]], None]
"""A function that is called with every reading and all processes on the GPUs. This includes readings that are
not sent to the controller.
"""
ReasonCallback = Callable[[str], None]
"""A function that is called with the reason why GPUs are not clean, or with an empty string if the GPUs are
clean.
"""

SAMPLE_INTERVAL_S = 2.0
IDLE_PERCENT = 5
"""The controller counts a GPU below this utilisation, in percent, as idle
(controller/watchers/idle_gpus.py).
"""
NO_SUCH_GPU = "this host has no such GPU"


def ignore_readings(_samples: list[GpuSample], _processes: Sequence[GpuProcess]) -> None:
    """Do nothing. This is the default callback for GPU readings."""


class GpusUnknown(ValueError):
    """Raised if the GPUs of the host cannot be listed. The message is the reason."""


class GpuSource(Protocol):
    """The GPUs of a host, as the agent uses them. A GPU source lists the GPUs, sends readings and faults to
    the controller, and carries out checks and resets.
    """

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
        """Begin to read the GPUs at regular intervals. `on_samples` is called with all readings. `send` is
        called with messages for the controller: GPU faults, and readings that differ enough from the last
        sent readings (`ReportedReadings`). `holders` returns the running attempts that have GPUs.
        """

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:
        """Call `then` with an empty string when the GPUs are clean: no process outside of jobs uses the GPUs,
        and no memory of ended jobs is left. If a GPU is not clean after some time, call `then` with the
        reason.
        """

    def schedule_check(self, uuid: str, after_s: float) -> None:
        """Check a GPU in `after_s` seconds and send the result to the controller. A later check or reset of
        the same GPU cancels this check.
        """

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:
        """Reset a GPU in `after_s` seconds with the program `command`, and send the result to the controller.
        If the GPU is allocated to an attempt at that time, the reset fails.
        """


class NoGpus:
    """The GPU source of a host without GPUs."""

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
        """Read nothing, because there are no GPUs."""
        self._send = send

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:  # noqa: ARG002
        """Call `then` with an empty string at once, because no GPU is in use. If the attempt needs GPUs, its
        launch fails later.
        """
        then("")

    def schedule_check(self, uuid: str, after_s: float) -> None:  # noqa: ARG002
        """Report to the controller that the check has failed, because this host has no such GPU."""
        self._send(GpuChecked(uuid, False, NO_SUCH_GPU))

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002
        """Report to the controller that the reset has failed, because this host has no such GPU."""
        self._send(GpuReset(uuid, False, NO_SUCH_GPU))


class ReportedReadings:
    """The last GPU readings that were sent to the controller. A new reading of a GPU is sent only if it
    differs from the last sent reading by at least a small step (`_differs`), such as 256 MiB of used memory.
    """

    def __init__(self) -> None:
        self._sent: dict[str, GpuSample] = {}
        self._processes: tuple[GpuProcess, ...] = ()

    def changed(self, samples: list[GpuSample]) -> tuple[GpuSample, ...]:
        """Return the readings that differ from the last sent reading of the same GPU by at least a small step
        (`_differs`). Return also the first reading of a GPU. The caller must send the returned readings,
        because this method stores them as the last sent readings.
        """
        changed = tuple(each for each in samples if _differs(each, self._sent.get(each.uuid)))
        self._sent.update((each.uuid, each) for each in changed)
        return changed

    def processes_changed(self, processes: tuple[GpuProcess, ...]) -> bool:
        """Return whether `processes` differs from the last sent list: other processes, or a change of at
        least 256 MiB in the GPU memory of a process. If the result is True, the caller must send `processes`,
        because this method stores `processes` as the last sent list.
        """
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
    """Return the values of a GPU reading that must be sent after every change, however small: throttle
    reasons, ECC errors, remapped rows and NVLinks.
    """
    return (
        sample.throttle,
        sample.ecc_corrected,
        sample.ecc_uncorrected,
        sample.rows_remapped,
        sample.links_up,
        sample.links,
        sample.remap_pending,
    )
