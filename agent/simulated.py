"""Believable GPUs for demos and tests: the same ones for the same node every time."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from dataclasses import dataclass, replace
from typing import Mapping, Sequence

from agent.gpus import NOT_THERE, SAMPLE_S, Measure, Readings, Tell, Then, UnknownGpus, ignore
from agent.holders import Holder, Holders, loads
from agent.loop import Loop
from wire import mig
from wire.frames import GpuChecked, GpuFacts, GpuProcess, GpuProcesses, GpuReport, GpuReset, GpuSample
from wire.words import WHOLE_GPU

NVLINK_CLIQUE = 8


@dataclass(frozen=True)
class Model:
    """What makes a kind of GPU believable."""

    name: str
    memory_mib: int
    idle_w: int
    full_w: int
    nvlinks: int
    mhz: int
    memory_mhz: int
    compute: str


MODELS = {
    "H200": Model("NVIDIA H200", 143_771, 75, 700, 18, 1980, 3201, "9.0"),
    "H100": Model("NVIDIA H100 80GB HBM3", 81_559, 72, 700, 18, 1980, 2619, "9.0"),
    "A100": Model("NVIDIA A100-SXM4-80GB", 81_920, 62, 400, 12, 1410, 1593, "8.0"),
    "A100-40G": Model("NVIDIA A100-SXM4-40GB", 40_960, 55, 400, 12, 1410, 1215, "8.0"),
    "V100": Model("Tesla V100-SXM2-32GB", 32_768, 42, 300, 6, 1530, 877, "7.0"),
    "L40S": Model("NVIDIA L40S", 46_068, 35, 350, 0, 2520, 9001, "8.9"),
    "L4": Model("NVIDIA L4", 23_034, 16, 72, 0, 2040, 6251, "8.9"),
    "T4": Model("Tesla T4", 15_360, 10, 70, 0, 1590, 5001, "7.5"),
    "RTX4090": Model("NVIDIA GeForce RTX 4090", 24_564, 20, 450, 0, 2520, 10501, "8.9"),
}
_SLOW_MHZ = 345
_HOT_C = 68
"""From here on a simulated GPU says that its power cap holds it down, as a real one under full load does."""


class SimulatedGpus:
    """Believable GPUs that do nothing: the same ones for the same node every time."""

    numa_nodes = 2
    driver, cuda = "550.90.07", "12.4"
    real = False

    def __init__(self, node: str, description: str) -> None:
        facts: list[GpuFacts] = []
        self._models: list[Model] = []
        for count, model, slices in _groups(description):
            first = len(facts)
            for position in range(count):
                gpu = _facts(node, first, position, count, model)
                facts += _divided(node, gpu, slices, len(facts)) if slices else [gpu]
            self._models += [model] * (len(facts) - first)
        self.facts = tuple(facts)
        self._heat = [0.0] * len(facts)
        self._tick = 0
        self._readings = Readings()

    def watch(self, loop: Loop, holders: Holders, tell: Tell, measure: Measure = ignore) -> None:
        """Take a reading every few seconds."""
        self._loop, self._tell, self._measure = loop, tell, measure
        self._read(loop, holders, tell)

    def prove(self, uuids: Sequence[str], then: Then) -> None:  # noqa: ARG002 - nobody else knows of them
        """Nothing was ever in a simulated GPU."""
        then("")

    def check(self, uuid: str, after_s: float) -> None:
        """A simulated GPU is always well, if it is there."""
        there = any(gpu.uuid == uuid for gpu in self.facts)
        self._loop.after(after_s, lambda: self._tell(GpuChecked(uuid, there, "" if there else NOT_THERE)))

    def reset(self, uuid: str, command: Sequence[str], after_s: float) -> None:  # noqa: ARG002 - there is no device
        """What is made up is reset by saying so."""
        there = any(gpu.uuid == uuid for gpu in self.facts)
        self._loop.after(after_s, lambda: self._tell(GpuReset(uuid, there, "" if there else NOT_THERE)))

    def _read(self, loop: Loop, holders: Holders, tell: Tell) -> None:
        held = holders()
        samples = self.sample(loads(held))
        self._measure(samples)
        news = self._readings.changed(samples)
        if news:
            tell(GpuReport(news))
        found = _processes(held, {each.uuid: each.memory_used_mib for each in samples})
        if self._readings.others(found):
            tell(GpuProcesses(found))
        loop.after(SAMPLE_S, lambda: self._read(loop, holders, tell))

    def sample(self, loads: Mapping[str, int]) -> list[GpuSample]:
        """One reading of every GPU, a few seconds after the last."""
        self._tick += 1
        return [
            self._reading(gpu, self._models[gpu.index], loads.get(gpu.uuid, 0) / WHOLE_GPU)
            for gpu in self.facts
        ]

    def _reading(self, gpu: GpuFacts, model: Model, load: float) -> GpuSample:
        """Work comes in slow waves; heat follows power with delay."""
        index = gpu.index
        wave = math.sin(self._tick / 7 + int(gpu.uuid[4:8], 16))
        busy = min(1.0, load) * (0.9 + 0.07 * wave)
        self._heat[index] += 0.25 * (busy - self._heat[index])
        celsius = round(31 + index % 4 + 38 * self._heat[index])
        return GpuSample(
            gpu.uuid,
            round(100 * busy),
            round(gpu.memory_mib * (0.006 + min(1.0, load) * 0.82)),
            round(model.idle_w + busy * (model.full_w - model.idle_w)),
            celsius,
            clock_mhz=round(model.mhz * (0.97 + 0.03 * wave)) if busy else _SLOW_MHZ,
            memory_clock_mhz=model.memory_mhz,
            throttle=("power cap",) if celsius >= _HOT_C else (),
            ecc_corrected=int(gpu.uuid[4:12], 16) % 7 // 6,
            links_up=0 if gpu.mig else model.nvlinks,
            links=0 if gpu.mig else model.nvlinks,
        )


def _processes(held: list[Holder], used: Mapping[str, int]) -> tuple[GpuProcess, ...]:
    """As NVML would name them: the first process of every attempt, with its part of the memory."""
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


def _groups(description: str) -> list[tuple[int, Model, list[str]]]:
    found = []
    for part in description.split(","):
        match = re.fullmatch(r"([1-9]\d{0,2})x([A-Za-z0-9-]+)(?::(.+))?", part.strip())
        model = MODELS.get(match[2].upper()) if match else None
        if match is None or model is None:
            known = ", ".join(MODELS)
            raise UnknownGpus(f"cannot read {part!r}; write 8xH100 or 8xH100,8xL40S with one of {known}")
        try:
            slices = mig.instances(match[3]) if match[3] else []
        except ValueError as error:
            raise UnknownGpus(f"cannot read {part!r}: {error}") from None
        found.append((int(match[1]), model, slices))
    return found


def _divided(node: str, gpu: GpuFacts, slices: list[str], first: int) -> list[GpuFacts]:
    """The MIG instances of a GPU: devices of their own, which no NVLink reaches."""
    return [
        replace(
            gpu,
            index=first + place,
            uuid=f"MIG-{_uuid(f'{node}/{gpu.uuid}/{place}/{profile}')}",
            memory_mib=mig.memory_mib(profile),
            links=(),
            mig=profile,
        )
        for place, profile in enumerate(slices)
    ]


def _uuid(seed: str) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.sha256(seed.encode()).digest()[:16])


def _facts(node: str, first: int, position: int, count: int, model: Model) -> GpuFacts:
    """The GPU at this position of its group: half of a group at each socket, NVLink within eight."""
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
