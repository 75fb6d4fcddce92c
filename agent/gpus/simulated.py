"""Simulated GPUs for demonstrations and tests. A node has the same simulated GPUs at every start of its
agent.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from dataclasses import replace
from typing import Mapping, Optional, Sequence

from agent.event_loop import EventLoop
from agent.gpus.interface import (
    NO_SUCH_GPU,
    SAMPLE_INTERVAL_S,
    ReadingsCallback,
    ReasonCallback,
    ReportedReadings,
    SendFrame,
    ignore_readings,
)
from agent.gpus.process_owners import GpuHolder, ListHolders, held_milli, loaded_milli
from wire.agent.reports import GpuChecked, GpuFacts, GpuProcess, GpuProcesses, GpuReport, GpuReset, GpuSample
from wire.cluster import mig
from wire.dataclass import dataclass
from wire.gpudescription import GpuGroup
from wire.names import WHOLE_GPU

NVLINK_CLIQUE = 8


@dataclass(frozen=True)
class SimulatedModel:
    name: str
    memory_mib: int
    idle_w: int
    full_w: int
    nvlinks: int
    mhz: int
    memory_mhz: int
    compute: str


MODELS = {
    "H200": SimulatedModel("NVIDIA H200", 143_771, 75, 700, 18, 1980, 3201, "9.0"),
    "H100": SimulatedModel("NVIDIA H100 80GB HBM3", 81_559, 72, 700, 18, 1980, 2619, "9.0"),
    "A100": SimulatedModel("NVIDIA A100-SXM4-80GB", 81_920, 62, 400, 12, 1410, 1593, "8.0"),
    "A100-40G": SimulatedModel("NVIDIA A100-SXM4-40GB", 40_960, 55, 400, 12, 1410, 1215, "8.0"),
    "V100": SimulatedModel("Tesla V100-SXM2-32GB", 32_768, 42, 300, 6, 1530, 877, "7.0"),
    "L40S": SimulatedModel("NVIDIA L40S", 46_068, 35, 350, 0, 2520, 9001, "8.9"),
    "L4": SimulatedModel("NVIDIA L4", 23_034, 16, 72, 0, 2040, 6251, "8.9"),
    "T4": SimulatedModel("Tesla T4", 15_360, 10, 70, 0, 1590, 5001, "7.5"),
    "RTX4090": SimulatedModel("NVIDIA GeForce RTX 4090", 24_564, 20, 450, 0, 2520, 10501, "8.9"),
}
_SLOW_MHZ = 345
_HOT_C = 68
"""The temperature, in degrees Celsius, from which a simulated GPU reports a power cap, like a real GPU under
full load.
"""


class SimulatedGpus:
    """The simulated GPUs of a node. The utilisation, temperature and used memory of a simulated GPU depend on
    the attempts that have the GPU.

    An attempt loads its GPUs to 100 %, or to the percentage in CORRAL_SIMULATED_LOAD of its environment. The
    GPUs of an idle group (`simulated:8xH100:idle`) never have load.
    """

    numa_nodes = 2
    driver, cuda = "550.90.07", "12.4"
    real = False

    def __init__(self, node: str, groups: Sequence[GpuGroup]) -> None:
        facts: list[GpuFacts] = []
        self._models: list[SimulatedModel] = []
        self._idle: set[str] = set()
        wholes = 0
        for group in groups:
            first, model = len(facts), MODELS[group.model]
            for position in range(group.count):
                gpu = _facts(node, first, position, group.count, model)
                number, here = str(wholes), len(facts)
                wholes += 1
                if group.slices:
                    facts += _divided(node, gpu, group.slices, here, number)
                else:
                    facts.append(replace(gpu, label=number if number != str(gpu.index) else ""))
            self._models += [model] * (len(facts) - first)
            self._idle.update(gpu.uuid for gpu in facts[first:] if group.idle)
        self.facts = tuple(facts)
        self._heat = [0.0] * len(facts)
        self._tick = 0
        self._readings = ReportedReadings()

    def watch(
        self,
        loop: EventLoop,
        holders: ListHolders,
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,
    ) -> None:
        self._loop, self._send, self._on_samples = loop, send, on_samples
        self._read(loop, holders, send)

    def wait_until_clean(self, uuids: Sequence[str], then: ReasonCallback) -> None:  # noqa: ARG002
        """Call `then` with an empty string at once, because a simulated GPU never has processes outside of
        jobs or used memory of ended jobs.
        """
        then("")

    def schedule_check(self, uuid: str, after_s: float) -> None:
        """Report that the GPU is healthy, after `after_s` seconds. If the GPU does not exist, report that the
        check has failed.
        """
        there = any(gpu.uuid == uuid for gpu in self.facts)
        self._loop.call_later(
            after_s, lambda: self._send(GpuChecked(uuid, there, "" if there else NO_SUCH_GPU))
        )

    def schedule_reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002
        """Report that the GPU was reset, after `after_s` seconds. If the GPU does not exist, report that the
        reset has failed.
        """
        there = any(gpu.uuid == uuid for gpu in self.facts)
        self._loop.call_later(
            after_s, lambda: self._send(GpuReset(uuid, there, "" if there else NO_SUCH_GPU))
        )

    def _read(self, loop: EventLoop, holders: ListHolders, send: SendFrame) -> None:
        held = holders()
        samples = self.sample(held_milli(held), loaded_milli(held))
        self._on_samples(samples, ())
        changed = self._readings.changed(samples)
        if changed:
            send(GpuReport(changed))
        found = _processes(held, {each.uuid: each.memory_used_mib for each in samples})
        if self._readings.processes_changed(found):
            send(GpuProcesses(found))
        loop.call_later(SAMPLE_INTERVAL_S, lambda: self._read(loop, holders, send))

    def sample(self, held: Mapping[str, int], loaded: Optional[Mapping[str, int]] = None) -> list[GpuSample]:
        """Return a new reading of every GPU. `held` has the allocated part of each GPU, and `loaded` the part
        under load, both in thousandths of the GPU, by UUID. Without `loaded`, the whole allocated part is
        under load.
        """
        self._tick += 1
        loaded = held if loaded is None else loaded
        return [
            self._reading(
                gpu,
                self._models[gpu.index],
                held.get(gpu.uuid, 0) / WHOLE_GPU,
                0.0 if gpu.uuid in self._idle else loaded.get(gpu.uuid, 0) / WHOLE_GPU,
            )
            for gpu in self.facts
        ]

    def _reading(self, gpu: GpuFacts, model: SimulatedModel, held: float, load: float) -> GpuSample:
        """Return a new reading of one GPU. `held` is the allocated part of the GPU and `load` the part under
        load, from 0 to 1. The utilisation varies in slow waves, and the temperature follows with a delay.
        """
        index = gpu.index
        wave = math.sin(self._tick / 7 + int(gpu.uuid[4:8], 16))
        busy = min(1.0, load) * (0.9 + 0.07 * wave)
        self._heat[index] += 0.25 * (busy - self._heat[index])
        celsius = round(31 + index % 4 + 38 * self._heat[index])
        return GpuSample(
            gpu.uuid,
            round(100 * busy),
            round(gpu.memory_mib * (0.006 + min(1.0, held) * 0.82)),
            round(model.idle_w + busy * (model.full_w - model.idle_w)),
            celsius,
            clock_mhz=round(model.mhz * (0.97 + 0.03 * wave)) if busy else _SLOW_MHZ,
            memory_clock_mhz=model.memory_mhz,
            throttle=("power cap",) if celsius >= _HOT_C else (),
            ecc_corrected=int(gpu.uuid[4:12], 16) % 7 // 6,
            links_up=0 if gpu.mig else model.nvlinks,
            links=0 if gpu.mig else model.nvlinks,
        )


def _processes(held: list[GpuHolder], used: Mapping[str, int]) -> tuple[GpuProcess, ...]:
    """Return the processes that NVML would list: one for each attempt in `held` on each of its GPUs. `used`
    is the used memory of each GPU in MiB, by UUID. Each process has the used memory of the GPU multiplied by
    the attempt's part of the GPU.
    """
    return tuple(
        GpuProcess(
            hold.uuid,
            holder.pid,
            holder.user,
            holder.command,
            used[hold.uuid] * hold.milli // WHOLE_GPU,
            holder.job,
        )
        for holder in held
        for hold in holder.gpus
        if hold.uuid in used
    )


def _divided(node: str, gpu: GpuFacts, slices: Sequence[str], first: int, number: str) -> list[GpuFacts]:
    """Return the MIG instances into which `gpu` is divided, one for each MIG profile in `slices`. Each
    instance is a separate device without NVLink. The indices of the instances begin at `first`; `number` is
    the number that the driver gives `gpu`, such as 3.
    """
    return [
        replace(
            gpu,
            index=first + slot,
            uuid=f"MIG-{_uuid(f'{node}/{gpu.uuid}/{slot}/{profile}')}",
            memory_mib=mig.memory_mib(profile),
            links=(),
            mig=profile,
            label=f"{number}:{slot}",
        )
        for slot, profile in enumerate(slices)
    ]


def _uuid(seed: str) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16])


def _facts(node: str, first: int, position: int, count: int, model: SimulatedModel) -> GpuFacts:
    """Return the description of the GPU at `position` (from 0) in a group of `count` equal GPUs. The indices
    of the group begin at `first`. The first half of the group is on NUMA node 0, the second half on NUMA node
    1. NVLink connects the GPUs in sets of eight.
    """
    index = first + position
    clique = position // NVLINK_CLIQUE * NVLINK_CLIQUE
    others = range(clique, min(count, clique + NVLINK_CLIQUE)) if model.nvlinks else ()
    return GpuFacts(
        index=index,
        uuid=f"GPU-{_uuid(f'{node}/{index}/{model.name}')}",
        model=model.name,
        memory_mib=model.memory_mib,
        numa=position * 2 // count,
        pci_bus=f"{index // 16:08X}:{0x18 + index % 16 * 8:02X}:00.0",
        links=tuple(first + other for other in others if other != position),
        compute=model.compute,
        power_limit_w=model.full_w,
    )
