"""Assigns CPUs and NUMA nodes of this host to attempts."""

from __future__ import annotations

from typing import Callable, Sequence

from agent.attempts.spool import AttemptKey
from agent.host.facts import HostFacts
from wire.agent.orders import Start


class CpuAllocator:
    """Assigns exclusive CPUs to each attempt, if possible whole cores of one NUMA node.

    The setting `bind` in [jobs] selects the mode. `cores` follows the steps below. With `numa`, an attempt
    may use all CPUs of the NUMA nodes that its start order names, or of the host if the order names none.
    With `none`, an attempt may use all CPUs of the host.
    1. An attempt gets exclusive CPUs only if it requests whole CPUs and its CPU limit is equal to its
       request. Any other attempt gets CPUs as with `numa`.
    2. If the start order names NUMA nodes, such as those of the GPUs, these NUMA nodes together are the only
       candidate. If the order names none, each NUMA node is a candidate: first the NUMA node with the fewest
       free CPUs, so that other NUMA nodes stay free for large jobs. The last candidate is the whole host.
    3. Take the CPUs from the first candidate that has enough free CPUs. Entirely free cores are taken first,
       and the hyper-threads of one core together.
    4. If no candidate has enough free CPUs, the attempt gets CPUs as with `numa`.

    CPUs of ended attempts are released when CPUs are chosen the next time.

    Example: the host has 2 NUMA nodes of 8 CPUs. NUMA node 0 has 3 free CPUs and NUMA node 1 has 8. A job
    with 2 CPUs gets 2 CPUs of NUMA node 0.
    """

    def __init__(
        self, host: HostFacts, mode: str, offered: int, has_ended: Callable[[AttemptKey], bool | None]
    ) -> None:
        self._host = host
        # If the node offers more CPUs than its host has (overcommit), no attempt gets exclusive CPUs.
        self._mode = "numa" if mode == "cores" and offered > host.cpus else mode
        self._has_ended = has_ended
        self._held: dict[AttemptKey, list[int]] = {}

    def adopt(self, key: AttemptKey, cpus: Sequence[int]) -> None:
        """Record that an attempt still has the CPUs that an earlier agent has assigned to the attempt."""
        if self._mode == "cores" and len(cpus) < self._host.cpus:
            self._held[key] = list(cpus)

    def choose(self, key: AttemptKey, order: Start) -> tuple[list[int], list[int]]:
        """Return the CPUs to which an attempt is bound, and the NUMA nodes whose memory it uses first. Empty
        lists mean any CPU and any memory.
        """
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
        """Return how attempts are bound to CPUs and memory, as text for `corral nodes show`."""
        descriptions = {
            "cores": "exclusive CPUs on the job's NUMA nodes, and memory from there first",
            "numa": "all CPUs of the job's NUMA nodes, and memory from there first",
        }
        return descriptions.get(self._mode, "any CPU, any memory")

    def _near(self, nodes: list[int]) -> list[int]:
        """Return the NUMA nodes whose memory an attempt with CPUs on `nodes` uses first: `nodes` itself.
        Return an empty list (no preference) if the host has only one NUMA node.
        """
        return nodes if len(self._host.numa) > 1 else []

    def _fullest_first(self) -> list[int]:
        return sorted(self._host.numa, key=lambda node: len(self._free(self._host.numa[node])))

    def _free(self, among: Sequence[int]) -> list[int]:
        """Return the free CPUs in `among`, the CPUs of entirely free cores first. Hyper-threads of one core
        are next to each other.
        """
        for key in [key for key in self._held if self._has_ended(key) is not False]:
            del self._held[key]
        taken = {cpu for cpus in self._held.values() for cpu in cpus}
        free = [cpu for cpu in among if cpu not in taken]
        left = set(free)

        def rank(cpu: int) -> tuple[bool, int, int]:
            siblings = self._host.siblings.get(cpu, (cpu,))
            return not left.issuperset(siblings), min(siblings), cpu

        return sorted(free, key=rank)
