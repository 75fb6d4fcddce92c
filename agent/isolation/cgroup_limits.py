"""The cgroups of attempts on this host, and the limits of CPU, memory and number of processes that are set in
these cgroups.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import field

from agent.isolation.attempt_cgroup import CgroupSpec
from wire.agent.orders import Start
from wire.dataclass import dataclass

_PERIOD_US = 100_000


@dataclass
class HostCgroups:
    """The parent cgroups in which the agent creates the cgroups of attempts, and the limits that can be set
    there.
    """

    v2_parent: str = ""
    """The parent of the attempts' cgroups if cgroup v2 is used; empty if v1 is used."""
    parents: dict[str, str] = field(default_factory=dict)
    """A dict from v1 controller to the parent of the attempts' cgroups. The entry "" is the parent in cgroup
    v2.
    """
    own: dict[str, str] = field(default_factory=dict)
    """A dict from v1 controller to the agent's own cgroup. The entry "" is its v2 cgroup."""
    limited: tuple[str, ...] = ()
    """The cgroup controllers that limit jobs on this host."""
    kills: bool = False
    """Whether the agent can kill all processes of a cgroup together, with cgroup.kill or with the freezer."""
    why: str = ""
    """If `limited` is empty: the reason why jobs have no limits on this host."""

    def parts(self, key: str, order: Start | None, max_processes: int) -> list[CgroupSpec]:
        """Return the cgroups to create for the attempt `key` (such as 42.1), with their settings. Without a
        start order, the cgroups have no settings and only serve to find and kill processes.
        """
        settings = (
            {name: [] for name in self.parents} if order is None else self._settings(order, max_processes)
        )
        if self.v2_parent:
            every = [each for name in self.limited for each in settings.get(name, [])]
            return [(f"{self.v2_parent}/{key}", self.own[""], every)]
        return [
            (f"{parent}/{key}", self.own[name], settings.get(name, []))
            for name, parent in self.parents.items()
        ]

    def _settings(self, order: Start, max_processes: int) -> dict[str, list[tuple[str, str]]]:
        most_cpu, most_memory = order.most_cpu_milli, order.most_memory_mib
        quota = None if most_cpu is None else str(max(1_000, most_cpu * _PERIOD_US // 1_000))
        memory = None if most_memory is None else str(most_memory << 20)
        processes = ("pids.max", str(max_processes))
        # The CPU weight and the protected memory (memory.low) of the cgroup follow the request of the job. A
        # job that uses more than its request therefore loses CPU and memory first. A best-effort job has no
        # request and gets only unused CPU and memory.
        protected = "0" if order.best_effort else str(order.memory_mib << 20)
        if self.v2_parent:
            weight = "1" if order.best_effort else str(min(10_000, max(1, order.cpu_milli // 10)))
            return {
                "cpu": [("cpu.weight", weight), ("cpu.max", f"{quota or 'max'} {_PERIOD_US}")],
                "memory": [
                    ("memory.max", memory or "max"),
                    ("memory.low", protected),
                    ("memory.oom.group", "1"),
                ],
                "pids": [processes],
            }
        shares = str(cpu_shares(order))
        return {
            "cpu": [
                ("cpu.shares", shares),
                ("cpu.cfs_period_us", str(_PERIOD_US)),
                ("cpu.cfs_quota_us", quota or "-1"),
            ],
            "memory": [("memory.limit_in_bytes", memory or "-1"), ("memory.soft_limit_in_bytes", protected)],
            "pids": [processes],
        }

    def tidy(self) -> None:
        """Remove each parent of the attempts' cgroups, unless an attempt still has a cgroup there."""
        for parent in [self.v2_parent] if self.v2_parent else self.parents.values():
            with suppress(OSError):
                os.rmdir(parent)

    def describe(self) -> str:
        """Return the cgroup controllers that limit jobs, or why there are none, as text for `corral nodes
        show`.
        """
        if not self.limited:
            return f"none: {self.why}"
        return f"{', '.join(self.limited)} by cgroup {'v2' if self.v2_parent else 'v1'}"

    def describe_end(self) -> str:
        """Return the method that ends all processes of a job, as text for `corral nodes show`."""
        return f"{'the whole group' if self.kills else 'process tree'}, and no process left"


def cpu_shares(order: Start) -> int:
    """Return the CPU weight of a job in the unit of cgroup v1 and of container runtimes: 1024 per CPU."""
    return 2 if order.best_effort else min(262_144, max(2, order.cpu_milli * 1_024 // 1_000))
