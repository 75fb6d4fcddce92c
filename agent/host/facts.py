"""Reads the CPUs, memory and NUMA nodes of this host from /proc and /sys."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Mapping, Sequence

from wire.agent.reports import NumaFacts
from wire.dataclass import dataclass


@dataclass(frozen=True)
class HostFacts:
    """The CPUs, memory and NUMA nodes of the host when the agent started."""

    cpus: int
    memory_mib: int
    numa: dict[int, list[int]]
    nodes: tuple[NumaFacts, ...] = ()
    all_cpus: tuple[int, ...] = ()
    siblings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For each CPU, the CPUs (hyper-threads) of the same core."""

    def cpus_of(self, nodes: Sequence[int]) -> list[int]:
        """Return the CPUs of these NUMA nodes. If `nodes` is empty, or if one of the NUMA nodes is unknown or
        has no CPUs, return an empty list, so that the job is not bound to CPUs.
        """
        if not nodes or not all(self.numa.get(node) for node in nodes):
            return []
        return sorted(cpu for node in nodes for cpu in self.numa[node])


def read_host(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> HostFacts:
    """Read the CPUs, memory and NUMA nodes of this host. CPUs that this process may not use are left out."""
    usable = os.sched_getaffinity(0)
    numa, nodes = {}, []
    for folder in sorted(sys.glob("devices/system/node/node[0-9]*"), key=lambda each: int(each.name[4:])):
        number = int(folder.name[4:])
        listed = (folder / "cpulist").read_text(encoding="ascii").strip()
        numa[number] = [cpu for cpu in cpu_list(listed) if cpu in usable]
        nodes.append(NumaFacts(number, listed, _numa_memory_mib(folder), _distances(folder)))
    siblings = {cpu: tuple(cpu_list(_siblings(sys, cpu))) for cpu in usable}
    return HostFacts(
        len(usable), _memory_mib(proc / "meminfo"), numa, tuple(nodes), tuple(sorted(usable)), siblings
    )


def _siblings(sys: Path, cpu: int) -> str:
    try:
        path = sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        return path.read_text(encoding="ascii")
    except OSError:
        return str(cpu)


def cpu_list(text: str) -> list[int]:
    """Return the numbers in a list in the kernel's format, such as `0-3,8-11`."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            found += range(int(low), int(high or low) + 1)
    return found


def _numa_memory_mib(folder: Path) -> int:
    try:
        lines = (folder / "meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[3]) // 1024 for line in lines if "MemTotal:" in line)
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def _distances(folder: Path) -> tuple[int, ...]:
    """Return the distances from one NUMA node to all NUMA nodes, as the firmware gives them; the distance of
    a NUMA node to itself is 10. Return an empty tuple if the distances are unknown.
    """
    try:
        return tuple(map(int, (folder / "distance").read_text(encoding="ascii").split()))
    except (OSError, ValueError):
        return ()


def _memory_mib(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"{meminfo} has no line MemTotal")
