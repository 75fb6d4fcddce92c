"""Allocates CPUs of this host to attempts."""

from __future__ import annotations

from typing import Callable, Sequence

from agent.attempts.spool import AttemptKey
from agent.host.facts import HostFacts
from wire.agent.frames import Start


class CpuAllocator:
    """Gives each attempt CPUs of its own, if possible whole cores of one NUMA node.

    Modes ([jobs] bind): `cores` as below; `numa` all CPUs of the attempt's NUMA nodes; `none` any CPU.
    1. Only an attempt that asks for whole CPUs, and may use no more, gets CPUs of its own.
    2. Candidates are the NUMA nodes of its GPUs; without GPUs each node alone, the fullest that fits first,
       because large jobs need whole nodes; then all CPUs of the host.
    3. Within a candidate free CPUs of entirely free cores come first, hyper-threads of a core together.
    4. If no candidate has enough free CPUs, it shares the CPUs of its NUMA nodes.
    CPUs of ended attempts are released when CPUs are chosen next.

    Example: 2 NUMA nodes of 8 CPUs; node 0 has 3 free, node 1 has 8. A job with 2 CPUs gets them on node 0.
    """

    def __init__(
        self, host: HostFacts, mode: str, offered: int, has_ended: Callable[[AttemptKey], bool | None]
    ) -> None:
        self._host = host
        # because with more CPUs on offer than there are, attempts have to share
        self._mode = "numa" if mode == "cores" and offered > host.cpus else mode
        self._has_ended = has_ended
        self._held: dict[AttemptKey, list[int]] = {}

    def adopt(self, key: AttemptKey, cpus: Sequence[int]) -> None:
        """Let an attempt that ran before this agent keep its CPUs."""
        if self._mode == "cores" and len(cpus) < self._host.cpus:
            self._held[key] = list(cpus)

    def choose(self, key: AttemptKey, order: Start) -> tuple[list[int], list[int]]:
        """CPUs and NUMA nodes to bind an attempt to. An empty list means no binding."""
        if self._mode == "none":
            return [], []
        numa = list(order.numa) if self._host.cpus_of(order.numa) else []
        has_own_cpus = order.cpu_milli % 1_000 == 0 and order.most_cpu_milli == order.cpu_milli
        if self._mode != "cores" or not has_own_cpus:
            return self._host.cpus_of(numa), self._near(numa)
        count = order.cpu_milli // 1_000
        for nodes in [numa] if numa else [*([node] for node in self._fullest_first()), []]:
            among = self._host.cpus_of(nodes) if nodes else self._host.all_cpus
            free = self._free(among)
            if len(free) >= count:
                self._held[key] = free[:count]
                return sorted(free[:count]), self._near(nodes)
        return self._host.cpus_of(numa), self._near(numa)

    def describe(self) -> str:
        """How attempts are bound, for `corral node`."""
        descriptions = {
            "cores": "CPUs of its own on its NUMA nodes, and memory from there first",
            "numa": "the CPUs of its NUMA nodes, and memory from there first",
        }
        return descriptions.get(self._mode, "any CPU, any memory")

    def _near(self, nodes: list[int]) -> list[int]:
        """NUMA nodes for memory; none on a host with one node, where all memory is near."""
        return nodes if len(self._host.numa) > 1 else []

    def _fullest_first(self) -> list[int]:
        """The NUMA nodes, the one with the fewest free CPUs first."""
        return sorted(self._host.numa, key=lambda node: len(self._free(self._host.numa[node])))

    def _free(self, among: Sequence[int]) -> list[int]:
        """Free CPUs, those of entirely free cores first, hyper-threads of a core together."""
        for key in [key for key in self._held if self._has_ended(key) is not False]:
            del self._held[key]
        taken = {cpu for cpus in self._held.values() for cpu in cpus}
        free = [cpu for cpu in among if cpu not in taken]
        left = set(free)

        def rank(cpu: int) -> tuple[bool, int, int]:
            siblings = self._host.siblings.get(cpu, (cpu,))
            return not left.issuperset(siblings), min(siblings), cpu

        return sorted(free, key=rank)
