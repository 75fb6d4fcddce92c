"""Refuses a GPU that is already on another node. A host that joined under two names would offer its GPUs
twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wire.text import printable


class GpuOwners:
    """The node that has each GPU, by UUID. Nodes without a connection keep their GPUs."""

    def __init__(self, nodes: Mapping[str, Iterable[str]]) -> None:
        self._gpus = {node: frozenset(uuids) for node, uuids in nodes.items()}
        self._owners = {uuid: node for node, uuids in self._gpus.items() for uuid in uuids}

    def claim(self, node: str, uuids: Iterable[str]) -> str:
        """Record the GPUs of a node. Returns the reason if another node has one of them, or ""."""
        had, wanted = self._gpus.get(node, frozenset()), frozenset(uuids)
        for uuid in sorted(wanted - had):
            owner = self._owners.get(uuid, node)
            if owner != node:
                return (
                    f"its GPU {printable(uuid)} is node {owner}'s. Is this the same host under another name? "
                    f"'corral nodes remove' one of {owner} and {node}; then the other joins"
                )
        self.release(node)
        self._gpus[node] = wanted
        self._owners.update(dict.fromkeys(wanted, node))
        return ""

    def release(self, node: str) -> None:
        """Remove the GPUs of a node."""
        for uuid in self._gpus.pop(node, ()):
            if self._owners.get(uuid) == node:
                del self._owners[uuid]
