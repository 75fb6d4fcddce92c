"""Finds GPU problems in measurements: ECC errors, pending row remaps, NVLinks, slowdown, leaked memory.

Measurements are not passed to the engine, because they are not written to the journal. This module compares
each measurement with earlier ones, and passes problems to the engine as inputs, like the Xid errors that
agents report. The table `[gpus.rules]` of the configuration sets the actions after a problem
(core/cluster/gpus/gpu_health.py).

1. Counters: each rise of the uncorrected ECC errors is reported once. Corrected ECC errors are reported after
   `corrected_per_hour` errors within an hour. A counter that is lower than before was reset to 0 when the
   driver was loaded.
2. Conditions: a row remap that waits for a reset; fewer NVLinks up than before, or than on another GPU of the
   node; a slowdown by heat or hardware for `slowdown_s`; memory in use on a free GPU without a process for
   `memory_s`. A condition lasts until a measurement shows its end.
3. While a condition lasts, a health check of the GPU counts as failed even if the agent finds the GPU good,
   because the agent's check cannot see such a condition.

A new controller process has no earlier measurements, so this process does not find rises of counters before
its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from controller.core.cluster.gpus.gpu_health import GpuHealthPolicy, HealthAction
from controller.core.model.inputs.agent_inputs import GpuTroubled
from controller.core.model.inputs.input import Input
from wire.agent.reports import GpuProcess, GpuSample
from wire.names import TroubleKind
from wire.text import counted, memory

CHECK_S = 2.0
HOUR_S = 3_600.0
DRIVER_MIB = 1_024
LEAK_MIB = 512
SLOWDOWNS = ("hardware slowdown", "too hot (hardware)", "power brake")


@dataclass(slots=True)
class _Gpu:
    """The earlier measurements of one GPU, with which new measurements are compared."""

    sample: GpuSample
    uncorrected: int
    corrected: int
    corrected_since: float
    links_up: int
    slow_since: float | None = None
    leaked_since: float | None = None
    news: list[tuple[TroubleKind, str]] = field(default_factory=list)
    """Problems from increased error counters that have not been reported to the engine yet."""
    reported: dict[TroubleKind, str] = field(default_factory=dict)
    """Lasting conditions that have been reported to the engine."""


class GpuHealthWatch:
    """Finds problems in the measurements of all GPUs. The function `held` returns the UUIDs of the GPUs of a
    node that jobs hold."""

    def __init__(
        self,
        health_policy: GpuHealthPolicy,
        held: Callable[[str], Collection[str]],
        tell: Callable[[Input], None],
    ) -> None:
        self._policy = health_policy
        self._held = held
        self._tell = tell
        self._gpus: dict[str, dict[str, _Gpu]] = {}
        self._busy: dict[str, set[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def reconfigure(self, health_policy: GpuHealthPolicy) -> None:
        """Use other rules and thresholds for GPU problems from now on."""
        self._policy = health_policy

    def read(self, node: str, samples: Iterable[GpuSample], now: float) -> None:
        """Compare new measurements of a node's GPUs with the earlier measurements, and store the new
        measurements.
        """
        known = self._gpus.setdefault(node, {})
        for sample in samples:
            gpu = known.get(sample.uuid)
            if gpu is None:
                known[sample.uuid] = _Gpu(
                    sample, sample.ecc_uncorrected, sample.ecc_corrected, now, sample.links_up
                )
            else:
                gpu.sample, gpu.links_up = sample, max(gpu.links_up, sample.links_up)
                self._count(gpu, now)
            self._note_times(node, known[sample.uuid], now)

    def processes(self, node: str, processes: Iterable[GpuProcess], now: float) -> None:
        self._busy[node] = {each.uuid for each in processes}
        for gpu in self._gpus.get(node, {}).values():
            self._note_times(node, gpu, now)

    def forget(self, node: str) -> None:
        """Forget since when conditions on the node's GPUs have lasted, such as a slowdown, because the node's
        agent has connected again. Keep the error counters.
        """
        for gpu in self._gpus.get(node, {}).values():
            gpu.slow_since = gpu.leaked_since = None
        self._busy.pop(node, None)

    def open(self, clock: Callable[[], float]) -> None:
        """Start reporting: pass new problems to the engine at once, and then every CHECK_S seconds."""
        for given in list(self.found(clock())):
            self._tell(given)
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self.open, clock)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def found(self, now: float) -> Iterator[Input]:
        """Yield an input for the engine for each increased error counter, and for each condition that has
        begun, since the last call. Problems whose action is "ignore" are left out.
        """
        for node, gpus in self._gpus.items():
            most = _most_links(gpus.values())
            for uuid, gpu in gpus.items():
                # Check for leaked memory again, because a job on the GPU may have started or ended since the
                # last measurement.
                self._note_times(node, gpu, now)
                news, gpu.news = gpu.news, []
                lasting = self._lasting(node, gpu, most, now)
                news += [(kind, why) for kind, why in lasting.items() if kind not in gpu.reported]
                gpu.reported = lasting
                for kind, why in news:
                    if self._policy.rule(kind) is not HealthAction.IGNORE:
                        yield GpuTroubled(node, uuid, kind, why)

    def lasting(self, node: str, uuid: str, now: float) -> str:
        """Return a text about a condition of a GPU that still lasts, such as a slowdown; "" if there is none.
        Conditions whose action is "ignore" are left out. While a condition lasts, a health check of the GPU
        counts as failed.
        """
        gpus = self._gpus.get(node, {})
        if uuid not in gpus:
            return ""
        lasting = self._lasting(node, gpus[uuid], _most_links(gpus.values()), now)
        heeded = (why for kind, why in lasting.items() if self._policy.rule(kind) is not HealthAction.IGNORE)
        return next(heeded, "")

    def _count(self, gpu: _Gpu, now: float) -> None:
        sample, limits = gpu.sample, self._policy.limits
        more = sample.ecc_uncorrected - gpu.uncorrected
        if more > 0:
            total = f"{sample.ecc_uncorrected:,} since its driver was loaded"
            why = f"{counted(more, 'more uncorrected ECC error')} ({total})"
            gpu.news.append((TroubleKind.ECC_UNCORRECTED, why))
        gpu.uncorrected = sample.ecc_uncorrected
        if now - gpu.corrected_since >= HOUR_S or sample.ecc_corrected < gpu.corrected:
            gpu.corrected, gpu.corrected_since = sample.ecc_corrected, now
        more = sample.ecc_corrected - gpu.corrected
        if more >= limits.corrected_per_hour:
            why = f"{counted(more, 'corrected ECC error')} within an hour"
            gpu.news.append((TroubleKind.ECC_CORRECTED, why))
            gpu.corrected, gpu.corrected_since = sample.ecc_corrected, now

    def _note_times(self, node: str, gpu: _Gpu, now: float) -> None:
        slow = any(word in SLOWDOWNS for word in gpu.sample.throttle)
        gpu.slow_since = (gpu.slow_since or now) if slow else None
        leaked = bool(self._leaked_mib(node, gpu))
        gpu.leaked_since = (gpu.leaked_since or now) if leaked else None

    def _leaked_mib(self, node: str, gpu: _Gpu) -> int:
        """Return the leaked memory of a GPU in MiB. Memory is leaked if it is in use although no job holds
        the GPU and no process uses the GPU. A small amount does not count as leaked, because the driver
        itself needs some memory.
        """
        uuid = gpu.sample.uuid
        if node not in self._busy or uuid in self._busy[node] or uuid in self._held(node):
            return 0
        left = gpu.sample.memory_used_mib - DRIVER_MIB
        return gpu.sample.memory_used_mib if left > LEAK_MIB else 0

    def _lasting(
        self, node: str, gpu: _Gpu, most_links: dict[int, int], now: float
    ) -> dict[TroubleKind, str]:
        sample, limits, found = gpu.sample, self._policy.limits, {}
        if sample.remap_pending:
            found[TroubleKind.ROW_REMAP] = "a row of its memory is remapped at its next reset"
        expected = max(gpu.links_up, most_links.get(sample.links, 0))
        if sample.links_up < expected:
            found[TroubleKind.NVLINK] = f"{sample.links_up} of {expected} NVLinks are up"
        if gpu.slow_since is not None and now - gpu.slow_since >= limits.slowdown_s:
            why = ", ".join(word for word in sample.throttle if word in SLOWDOWNS)
            found[TroubleKind.SLOWDOWN] = f"its clocks are held down: {why}, {sample.temperature_c} °C"
        leaked = self._leaked_mib(node, gpu)
        if leaked and gpu.leaked_since is not None and now - gpu.leaked_since >= limits.memory_s:
            found[TroubleKind.MEMORY] = f"{memory(leaked)} of its memory is in use and no process is on it"
        return found


def _most_links(gpus: Iterable[_Gpu]) -> dict[int, int]:
    """Return for each type of GPU the largest number of NVLinks that have been up on one of these GPUs.

    The key of the result is the number of NVLinks that a GPU has. GPUs with the same number count as one
    type.
    """
    most: dict[int, int] = {}
    for gpu in gpus:
        most[gpu.sample.links] = max(most.get(gpu.sample.links, 0), gpu.links_up)
    return most
