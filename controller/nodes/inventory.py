"""Which node has which GPU: a host that joined under two names would give each of its GPUs twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wire.text import plain


class Inventory:
    """GPUs by their UUIDs, those of nodes that are away too."""

    def __init__(self, nodes: Mapping[str, Iterable[str]]) -> None:
        self._gpus = {node: frozenset(uuids) for node, uuids in nodes.items()}
        self._owners = {uuid: node for node, uuids in self._gpus.items() for uuid in uuids}

    def claim(self, node: str, uuids: Iterable[str]) -> str:
        """These are a node's from now on, or words on why they are not."""
        had, wanted = self._gpus.get(node, frozenset()), frozenset(uuids)
        for uuid in sorted(wanted - had):
            owner = self._owners.get(uuid, node)
            if owner != node:
                return (
                    f"its GPU {plain(uuid)} is node {owner}'s. Is this the same host under another name? "
                    f"'corral nodes remove' one of {owner} and {node}; then the other joins by itself"
                )
        self.drop(node)
        self._gpus[node] = wanted
        self._owners.update(dict.fromkeys(wanted, node))
        return ""

    def drop(self, node: str) -> None:
        """Nobody has them any more."""
        for uuid in self._gpus.pop(node, ()):
            if self._owners.get(uuid) == node:
                del self._owners[uuid]
