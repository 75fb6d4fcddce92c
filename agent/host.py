"""What this host has: CPUs, memory, NUMA nodes. The roots of /proc and /sys are parameters, for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence


@dataclass(frozen=True)
class Host:
    """Read once at the start; a change needs a new hello anyway."""

    cpus: int
    memory_mib: int
    numa: dict[int, list[int]]

    def cpus_of(self, nodes: Sequence[int]) -> list[int]:
        """The CPUs of these NUMA nodes; none, which means no binding, unless the host knows all of them."""
        if not nodes or not all(self.numa.get(node) for node in nodes):
            return []
        return sorted(cpu for node in nodes for cpu in self.numa[node])


def look(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Host:
    """What is really there and usable by us."""
    usable = os.sched_getaffinity(0)
    numa = {}
    for folder in sys.glob("devices/system/node/node[0-9]*"):
        listed = cpu_list((folder / "cpulist").read_text(encoding="ascii"))
        numa[int(folder.name[4:])] = [cpu for cpu in listed if cpu in usable]
    return Host(len(usable), _memory_mib(proc / "meminfo"), numa)


def cpu_list(text: str) -> list[int]:
    """The numbers of `0-3,8-11`, as the kernel writes lists."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            found += range(int(low), int(high or low) + 1)
    return found


def _memory_mib(meminfo: Path) -> int:
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"{meminfo} does not say MemTotal")
