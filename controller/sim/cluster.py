"""The virtual nodes of a simulation: the nodes of scheduler.toml, a number of equal nodes, or one large node
with all processors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.config import Config
from controller.sim.errors import SimulationRefused
from wire.agent.reports import GpuFacts, NodeFacts
from wire.cluster import mig
from wire.gpudescription import GpuGroup, parse_simulated
from wire.job.spec import JobSpec

CORE = 1000
"""In a simulation, one processor of a job log is this many thousandths of a CPU core."""
WIDEST = 10_000_000
"""The most CPU, in thousandths of a core, that a job may request on one node. If a pool (one large node with
all processors) would have more than this, each processor counts as less than a core.
"""
BOUNDLESS_MIB = 1 << 40
GPU_MEMORY_MIB = 81_920
ISLAND = 8
"""Number of GPUs of a virtual node that NVLink connects with each other."""
_MEMORY = re.compile(r"(\d{1,9})([MGT])(i?B)?")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The virtual nodes of a simulation, by name.

    For job logs that count in processors: one processor of the log is `core_milli` thousandths of a CPU core.
    """

    nodes: Mapping[str, NodeFacts]
    core_milli: int = CORE

    @property
    def cores(self) -> int:
        """Return the number of processors of the smallest node. No job requests more processors than this on
        one node."""
        return min(facts.cpu_milli for facts in self.nodes.values()) // self.core_milli

    @property
    def width(self) -> int:
        """Return the number of processors of the largest job that fits into the cluster."""
        return self.cores * len(self.nodes)

    @property
    def gpus(self) -> int:
        return sum(len(facts.gpus) for facts in self.nodes.values())

    @property
    def cpu_milli(self) -> int:
        """Return the CPU capacity of the cluster, in thousandths of a core."""
        return sum(facts.cpu_milli for facts in self.nodes.values())

    def spec(self, size: int, estimate_s: float) -> JobSpec:
        """Return a job spec for a job that needs `size` processors and has the time limit `estimate_s`.

        The spec requests the fewest nodes that can hold the job, and the same number of processors on each
        node. For example, 10 processors on nodes with 8 become 2 nodes with 5 each.
        """
        nodes = -(-size // self.cores)
        return JobSpec(
            command=("true",),
            cpu_milli=-(-size // nodes) * self.core_milli,
            memory_mib=1,
            nodes=nodes,
            time_limit_s=estimate_s,
            # Set the grace time to 0, because in the simulation a job ends exactly at its time limit.
            grace_s=0.0,
        )

    def __str__(self) -> str:
        count = len(self.nodes)
        gpus = f" and {self.gpus} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        cpus = self.cpu_milli / self.core_milli
        return f"{count} node{'s' * (count != 1)} with {cpus:g} CPU{'s' * (cpus != 1)}{gpus}"


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """A change of the cluster's capacity at the time `at_s`: the added GPUs and thousandths of a core.
    Negative numbers mean that capacity was removed.
    """

    at_s: float
    gpus: int
    cpu_milli: int


def pool_of(processors: int) -> Cluster:
    """Return a cluster of one node with this many processors and unlimited memory, where every job fits on
    one node."""
    core = max(1, min(CORE, WIDEST // processors))
    return Cluster({"pool": NodeFacts(processors * core, BOUNDLESS_MIB)}, core)


def nodes_of(count: int, gpus: int, cpus: int, memory_mib: int, model: str) -> Cluster:
    room = len(str(count))
    names = [f"n{number:0{room}}" for number in range(1, count + 1)]
    return Cluster({name: node_facts(name, cpus, memory_mib, (GpuGroup(gpus, model),)) for name in names})


def cluster_of_config(config: Config) -> Cluster:
    """Return the nodes of scheduler.toml. Raise SimulationRefused if the file does not state a node's CPUs,
    memory or GPUs."""
    nodes = {}
    for name, node in config.nodes.items():
        for key, value in (("cpus", node.cpus), ("memory", node.memory)):
            if value is None:
                raise SimulationRefused(
                    f"node {name}: its {key} is not in the configuration; only the host itself reports it",
                    f"Write {key} into [nodes.{name}], or describe the cluster with --nodes or --pool.",
                )
        if node.gpus in ("auto", "nvml"):
            raise SimulationRefused(
                f"node {name}: gpus = {node.gpus!r} is detected by the agent on the host",
                'Write gpus = "simulated:8xH100" or "none", or describe the cluster with --nodes and --gpus.',
            )
        groups = () if node.gpus == "none" else parse_simulated(node.gpus)
        nodes[name] = node_facts(name, node.cpus or 0, memory_mib(node.memory or ""), groups, node.labels)
    if not nodes:
        raise SimulationRefused(
            "there are no nodes to simulate", "Write --nodes N --gpus G, --pool N or --config."
        )
    return Cluster(nodes)


def memory_mib(text: str) -> int:
    """Convert an amount of memory, such as 512M, 64G or 2T, to MiB. Raise ValueError for any other form."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write 512M, 64G or 2T")
    return int(match[1]) * _MIB[match[2]]


def node_facts(
    name: str,
    cpus: int,
    memory_mib: int,
    groups: Sequence[GpuGroup],
    labels: Mapping[str, str] | None = None,
) -> NodeFacts:
    """Return the hardware of a node with two CPU sockets.

    Each socket has half of the GPUs of each group, and NVLink connects the GPUs in sets of eight.
    """
    gpus: list[GpuFacts] = []
    for group in groups:
        first = len(gpus)
        for place in range(group.count):
            island = place // ISLAND * ISLAND
            others = range(island, min(group.count, island + ISLAND))
            gpu = GpuFacts(
                index=len(gpus),
                uuid=f"GPU-{name}-{len(gpus)}",
                model=group.model,
                memory_mib=GPU_MEMORY_MIB,
                numa=place * 2 // group.count,
                links=tuple(first + other for other in others if other != place),
            )
            gpus += _divided(gpu, group.slices) if group.slices else [gpu]
    return NodeFacts(cpus * CORE, memory_mib, tuple(gpus), 2, labels or {})


def _divided(gpu: GpuFacts, slices: Sequence[str]) -> list[GpuFacts]:
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
