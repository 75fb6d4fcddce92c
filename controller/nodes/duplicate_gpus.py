"""Refuses a node that reports a GPU of another node: the GPUs of a host with two node names would be counted
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wire.text import printable


class GpuOwners:
    """The node of each GPU, by GPU UUID. The GPUs of a node are kept while the node is disconnected."""

    def __init__(self, nodes: Mapping[str, Iterable[str]]) -> None:
        self._gpus = {node: frozenset(uuids) for node, uuids in nodes.items()}
        self._owners = {uuid: node for node, uuids in self._gpus.items() for uuid in uuids}

    def claim(self, node: str, uuids: Iterable[str]) -> str:
        """Record the GPUs of a node and return "". If another node has already reported one of the GPUs,
        record nothing and return the reason to refuse the node."""
        had, wanted = self._gpus.get(node, frozenset()), frozenset(uuids)
        for uuid in sorted(wanted - had):
            owner = self._owners.get(uuid, node)
            if owner != node:
                return (
                    f"its GPU {printable(uuid)} belongs to node {owner}. If this is the same host under "
                    f"another name, remove one of {owner} and {node} with 'corral nodes remove'; "
                    "then the other can join"
                )
        self.release(node)
        self._gpus[node] = wanted
        self._owners.update(dict.fromkeys(wanted, node))
        return ""

    def release(self, node: str) -> None:
        for uuid in self._gpus.pop(node, ()):
            if self._owners.get(uuid) == node:
                del self._owners[uuid]
