"""Which CPUs an attempt gets for itself: whole cores of its NUMA nodes, while there are any free."""

from __future__ import annotations

from typing import Callable, Sequence

from agent.host import Host
from agent.spool import Key
from wire.frames import Start


class Cores:
    """Who holds which CPUs on this host. `over` tells which holders are gone."""

    def __init__(self, host: Host, mode: str, offered: int, over: Callable[[Key], bool | None]) -> None:
        self._host = host
        # More CPUs on offer than there are: then nobody can have some for himself.
        self._mode = "numa" if mode == "cores" and offered > host.cpus else mode
        self._over = over
        self._held: dict[Key, list[int]] = {}

    def adopt(self, key: Key, cpus: Sequence[int]) -> None:
        """An attempt that ran before this agent keeps what it has."""
        if self._mode == "cores" and len(cpus) < self._host.cpus:
            self._held[key] = list(cpus)

    def choose(self, key: Key, order: Start) -> tuple[list[int], list[int]]:
        """CPUs and NUMA nodes for an attempt; none of either: wherever it likes."""
        if self._mode == "none":
            return [], []
        numa = list(order.numa) if self._host.cpus_of(order.numa) else []
        exact = order.cpu_milli % 1_000 == 0 and order.most_cpu_milli == order.cpu_milli
        if self._mode != "cores" or not exact:
            return self._host.cpus_of(numa), self._near(numa)
        count = order.cpu_milli // 1_000
        for nodes in [numa] if numa else [*([node] for node in self._emptiest()), []]:
            among = self._host.cpus_of(nodes) if nodes else self._host.all_cpus
            free = self._free(among)
            if len(free) >= count:
                self._held[key] = free[:count]
                return sorted(free[:count]), self._near(nodes)
        return self._host.cpus_of(numa), self._near(numa)

    def describe(self) -> str:
        """In words for people."""
        told = {
            "cores": "CPUs of its own on its NUMA nodes, and memory from there first",
            "numa": "the CPUs of its NUMA nodes, and memory from there first",
        }
        return told.get(self._mode, "any CPU, any memory")

    def _near(self, nodes: list[int]) -> list[int]:
        """Memory needs a word only where it could be far."""
        return nodes if len(self._host.numa) > 1 else []

    def _emptiest(self) -> list[int]:
        """The fullest NUMA node that may still hold a small job comes first: large ones need whole nodes."""
        return sorted(self._host.numa, key=lambda node: len(self._free(self._host.numa[node])))

    def _free(self, among: Sequence[int]) -> list[int]:
        """Free CPUs, those on whole free cores first, siblings side by side."""
        for key in [key for key in self._held if self._over(key) is not False]:
            del self._held[key]
        taken = {cpu for cpus in self._held.values() for cpu in cpus}
        free = [cpu for cpu in among if cpu not in taken]
        left = set(free)

        def place(cpu: int) -> tuple[bool, int, int]:
            siblings = self._host.siblings.get(cpu, (cpu,))
            return not left.issuperset(siblings), min(siblings), cpu

        return sorted(free, key=place)
