"""Believable GPUs for demos and tests: the same ones for the same node every time."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from dataclasses import dataclass
from typing import Mapping

from agent.gpus import SAMPLE_S, Loads, Readings, Tell, UnknownGpus
from agent.loop import Loop
from wire.frames import GpuFacts, GpuReport, GpuSample
from wire.words import WHOLE_GPU

NVLINK_CLIQUE = 8


@dataclass(frozen=True)
class Model:
    """What makes a kind of GPU believable."""

    name: str
    memory_mib: int
    idle_w: int
    full_w: int
    nvlink: bool


MODELS = {
    "H200": Model("NVIDIA H200", 143_771, 75, 700, True),
    "H100": Model("NVIDIA H100 80GB HBM3", 81_559, 72, 700, True),
    "A100": Model("NVIDIA A100-SXM4-80GB", 81_920, 62, 400, True),
    "A100-40G": Model("NVIDIA A100-SXM4-40GB", 40_960, 55, 400, True),
    "V100": Model("Tesla V100-SXM2-32GB", 32_768, 42, 300, True),
    "L40S": Model("NVIDIA L40S", 46_068, 35, 350, False),
    "L4": Model("NVIDIA L4", 23_034, 16, 72, False),
    "T4": Model("Tesla T4", 15_360, 10, 70, False),
    "RTX4090": Model("NVIDIA GeForce RTX 4090", 24_564, 20, 450, False),
}


class SimulatedGpus:
    """Believable GPUs that do nothing: the same ones for the same node every time."""

    numa_nodes = 2

    def __init__(self, node: str, description: str) -> None:
        facts: list[GpuFacts] = []
        self._models: list[Model] = []
        for count, model in _groups(description):
            facts += [_facts(node, len(self._models), position, count, model) for position in range(count)]
            self._models += [model] * count
        self.facts = tuple(facts)
        self._heat = [0.0] * len(facts)
        self._tick = 0
        self._readings = Readings()

    def watch(self, loop: Loop, loads: Loads, tell: Tell) -> None:
        """Take a reading every few seconds."""
        news = self._readings.changed(self.sample(loads()))
        if news:
            tell(GpuReport(news))
        loop.after(SAMPLE_S, lambda: self.watch(loop, loads, tell))

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
        return GpuSample(
            gpu.uuid,
            round(100 * busy),
            round(model.memory_mib * (0.006 + min(1.0, load) * 0.82)),
            round(model.idle_w + busy * (model.full_w - model.idle_w)),
            round(31 + index % 4 + 38 * self._heat[index]),
        )


def _groups(description: str) -> list[tuple[int, Model]]:
    found = []
    for part in description.split(","):
        match = re.fullmatch(r"([1-9]\d{0,2})x([A-Za-z0-9-]+)", part.strip())
        model = MODELS.get(match[2].upper()) if match else None
        if match is None or model is None:
            known = ", ".join(MODELS)
            raise UnknownGpus(f"cannot read {part!r}; write 8xH100 or 8xH100,8xL40S with one of {known}")
        found.append((int(match[1]), model))
    return found


def _facts(node: str, first: int, position: int, count: int, model: Model) -> GpuFacts:
    """The GPU at this position of its group: half of a group at each socket, NVLink within eight."""
    index = first + position
    clique = position // NVLINK_CLIQUE * NVLINK_CLIQUE
    others = range(clique, min(count, clique + NVLINK_CLIQUE)) if model.nvlink else ()
    digest = hashlib.sha256(f"{node}/{index}/{model.name}".encode()).digest()
    return GpuFacts(
        index=index,
        uuid=f"GPU-{uuid.UUID(bytes=digest[:16])}",
        model=model.name,
        memory_mib=model.memory_mib,
        numa=position * 2 // count,
        pci_bus=f"{index // 16:08X}:{0x18 + index % 16 * 8:02X}:00.0",
        links=tuple(first + other for other in others if other != position),
    )
