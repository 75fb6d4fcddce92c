"""The nodes a log is run on: as scheduler.toml says, so many of one kind, or one pool of processors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.config import Config
from controller.sim.refusal import SimulationRefused
from wire import mig
from wire.frames import GpuFacts, NodeFacts
from wire.spec import JobSpec

CORE = 1000
"""CPU-milli of a processor."""
WIDEST = 10_000_000
"""CPU-milli that a job may ask of one node: in a wider pool a processor counts as less than a core."""
BOUNDLESS_MIB = 1 << 40
GPU_MEMORY_MIB = 81_920
ISLAND = 8
"""GPUs that reach each other over NVLink."""
_GROUP = re.compile(r"(\d{1,3})x([\w-]{1,40})(?::([\w.*/+]{1,80}))?")
_MEMORY = re.compile(r"(\d{1,9})([MGT])(i?B)?")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes by name. `core_milli` is what a processor of a log counts there."""

    nodes: Mapping[str, NodeFacts]
    core_milli: int = CORE

    @property
    def cores(self) -> int:
        """Processors that a log's job may have on one node: those of the smallest."""
        return min(facts.cpu_milli for facts in self.nodes.values()) // self.core_milli

    @property
    def width(self) -> int:
        """Processors of the widest job."""
        return self.cores * len(self.nodes)

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(len(facts.gpus) for facts in self.nodes.values())

    @property
    def cpu_milli(self) -> int:
        """All CPUs."""
        return sum(facts.cpu_milli for facts in self.nodes.values())

    def spec(self, size: int, estimate_s: float) -> JobSpec:
        """A job of so many processors: on the fewest nodes, the same number on each, rounded up."""
        nodes = -(-size // self.cores)
        return JobSpec(
            command=("true",),
            cpu_milli=-(-size // nodes) * self.core_milli,
            memory_mib=1,
            nodes=nodes,
            time_limit_s=estimate_s,
        )

    def __str__(self) -> str:
        count = len(self.nodes)
        gpus = f" and {self.gpus} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        cpus = self.cpu_milli / self.core_milli
        return f"{count} node{'s' * (count != 1)} with {cpus:g} CPU{'s' * (cpus != 1)}{gpus}"


def pool_of(processors: int) -> Cluster:
    """Interchangeable processors: one node, so that nothing is ever split, and memory for everybody."""
    core = max(1, min(CORE, WIDEST // processors))
    return Cluster({"pool": NodeFacts(processors * core, BOUNDLESS_MIB)}, core)


def nodes_of(count: int, gpus: int, cpus: int, memory_mib: int, model: str) -> Cluster:
    """So many nodes of one kind."""
    room = len(str(count))
    names = [f"n{number:0{room}}" for number in range(1, count + 1)]
    return Cluster({name: _facts(name, cpus, memory_mib, ((gpus, model, ""),)) for name in names})


def configured(config: Config) -> Cluster:
    """The nodes of scheduler.toml; what a host reports by itself must be written there."""
    nodes = {}
    for name, node in config.nodes.items():
        for key, value in (("cpus", node.cpus), ("memory", node.memory)):
            if value is None:
                raise SimulationRefused(
                    f"node {name}: only the host itself knows its {key}",
                    f"Write {key} into [nodes.{name}], or give the cluster by --nodes or --pool.",
                )
        if node.gpus in ("auto", "nvml"):
            raise SimulationRefused(
                f"node {name}: gpus = {node.gpus!r} is known only to the host itself",
                'Write gpus = "simulated:8xH100" or "none", or give the cluster by --nodes and --gpus.',
            )
        found = _GROUP.findall(node.gpus.partition(":")[2])
        groups = tuple((int(count), model, slices) for count, model, slices in found)
        nodes[name] = _facts(name, node.cpus or 0, memory_mib(node.memory or ""), groups, node.labels)
    if not nodes:
        raise SimulationRefused(
            "there are no nodes to simulate", "Give --nodes N --gpus G, --pool N or --config."
        )
    return Cluster(nodes)


def memory_mib(text: str) -> int:
    """512M, 64G, 2T: memory in MiB; a ValueError says what would be right."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write 512M, 64G or 2T")
    return int(match[1]) * _MIB[match[2]]


def _facts(
    name: str,
    cpus: int,
    memory_mib: int,
    groups: tuple[tuple[int, str, str], ...],
    labels: Mapping[str, str] | None = None,
) -> NodeFacts:
    """A host with two sockets: half of each group of GPUs at either, NVLink within eight neighbours."""
    gpus: list[GpuFacts] = []
    for count, model, slices in groups:
        first = len(gpus)
        for place in range(count):
            island = place // ISLAND * ISLAND
            others = range(island, min(count, island + ISLAND))
            gpu = GpuFacts(
                index=len(gpus),
                uuid=f"GPU-{name}-{len(gpus)}",
                model=model,
                memory_mib=GPU_MEMORY_MIB,
                numa=place * 2 // count,
                links=tuple(first + other for other in others if other != place),
            )
            gpus += _divided(gpu, mig.instances(slices)) if slices else [gpu]
    return NodeFacts(cpus * CORE, memory_mib, tuple(gpus), 2, labels or {})


def _divided(gpu: GpuFacts, slices: list[str]) -> list[GpuFacts]:
    return [
        replace(
            gpu,
            index=gpu.index + place,
            uuid=f"MIG-{gpu.uuid}-{place}",
            memory_mib=mig.memory_mib(profile),
            links=(),
            mig=profile,
        )
        for place, profile in enumerate(slices)
    ]
