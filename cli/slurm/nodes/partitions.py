"""Converts nodes and queues to nodes and partitions in the words and units of Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.slurm.formats.resources import gpu_type, natural, ranges
from cli.slurm.formats.states import node_state, used_cpus
from cli.slurm.show.controller import ask
from wire.http.controllers import Controllers

DEFAULT_QUEUE = "default"
"""The queue of jobs that name no queue."""


@dataclass(frozen=True)
class Node:
    """One node, with its state in Slurm's words and its resources in Slurm's units."""

    name: str
    state: str
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    sockets: int
    gpus: Mapping[str, tuple[int, tuple[int, ...]]]
    """For each type of GPU: the number of GPUs, and the indices of the GPUs that jobs hold."""
    why: str
    since: float | None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return self.cpus_used > 0

    @property
    def usable(self) -> bool:
        """Return True if new jobs may start on the node."""
        return self.state in ("idle", "mixed", "allocated")

    @property
    def gres(self) -> str:
        return ",".join(f"gpu:{kind}:{count}" for kind, (count, _) in self.gpus.items()) or "(null)"

    @property
    def gres_used(self) -> str:
        found = [
            f"gpu:{kind}:{len(held)}(IDX:{ranges(held) or 'N/A'})" for kind, (_, held) in self.gpus.items()
        ]
        return ",".join(found) or "(null)"

    @property
    def gpus_total(self) -> int:
        return sum(count for count, _ in self.gpus.values())

    @property
    def gpus_held(self) -> int:
        return sum(len(held) for _, held in self.gpus.values())

    @property
    def features(self) -> str:
        """Return the types of the node's GPUs, such as a100,h100, because these are the features that
        --constraint accepts.
        """
        return ",".join(self.gpus) or "(null)"


@dataclass(frozen=True)
class Partition:
    """One partition: a queue with the nodes that its jobs may use."""

    name: str
    nodes: tuple[Node, ...]
    max_time_s: float | None = None
    default_time_s: float | None = None
    priority: int = 0
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()

    @property
    def default(self) -> bool:
        return self.name == DEFAULT_QUEUE


def nodes(transport: Controllers) -> list[Node]:
    """Return all nodes in the order of their names; n2 comes before n10."""
    found = [_node(each) for each in ask(transport, "/v1/nodes")["nodes"]]
    return sorted(found, key=lambda node: natural(node.name))


def _node(view: Mapping[str, Any]) -> Node:
    gpus: dict[str, tuple[int, tuple[int, ...]]] = {}
    for gpu in view["gpus"]:
        kind = gpu_type(gpu["model"])
        count, held = gpus.get(kind, (0, ()))
        gpus[kind] = (count + 1, (*held, gpu["index"]) if gpu["jobs"] else held)
    return Node(
        name=view["name"],
        state=node_state(view),
        cpus=view["cpu_milli"] // 1_000,
        cpus_used=used_cpus(view),
        memory_mib=view["memory_mib"],
        memory_used_mib=view["memory_mib"] - view["memory_free_mib"],
        sockets=max(1, view["numa_nodes"]),
        gpus=gpus,
        why=view["why"],
        since=view["since"],
        labels=view["labels"],
    )


def partitions(transport: Controllers, known: Sequence[Node]) -> list[Partition]:
    """Return a partition for each queue, in the order of their names; the partition `default` comes first.
    Without a queue `default`, add a partition of this name with all nodes.
    """
    queues = ask(transport, "/v1/queues")["queues"]
    found = [_partition(queue, known) for queue in queues]
    if not any(each.default for each in found):
        found.append(Partition(DEFAULT_QUEUE, tuple(known)))
    return sorted(found, key=lambda each: (not each.default, each.name))


def _partition(queue: Mapping[str, Any], known: Iterable[Node]) -> Partition:
    settings = queue["settings"]
    select: Mapping[str, str] = settings.get("select", {})
    return Partition(
        name=queue["name"],
        nodes=tuple(
            node for node in known if all(node.labels.get(key) == value for key, value in select.items())
        ),
        max_time_s=settings.get("max_time_limit_s"),
        default_time_s=settings.get("default_time_limit_s"),
        priority=queue["priority"],
        users=tuple(settings.get("users", ())),
        projects=tuple(settings.get("projects", ())),
    )
