"""The nodes of one execution engine: adds them to the cluster, drains nodes that are drained in
the engine, and removes temporary nodes that are gone.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from controller.core.cluster.node import NO_FACTS, Node
from controller.engines.contract import ForeignNode
from wire.agent.reports import NodeFacts
from wire.cluster.hosts import checked_node_name
from wire.names import ENGINE_LABEL

log = logging.getLogger("corral.engines")
LOOKS_BEFORE_REMOVAL = 2
HASH_DIGITS = 8
_OTHER_CHARACTERS = re.compile("[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class NodeActions:
    """The functions of the controller with which ForeignNodes changes nodes of the cluster and reads them."""

    add: Callable[[str, ForeignNode], Awaitable[bool]]
    """Add a node with the taints of its engine, and a pilot node also with its labels. The result is False if
    another node has this name.
    """
    remove: Callable[[str], Awaitable[None]]
    drain: Callable[[str, str], Awaitable[None]]
    """Drain a node, with a reason."""
    resume: Callable[[str], Awaitable[None]]
    open: Callable[[str, ForeignNode], None]
    """Open a connection to a node that has appeared."""
    renew: Callable[[str], None]
    """Send the controller a new hello of a node whose resources have changed."""
    node: Callable[[str], Node | None]
    """Return the node in the state of the controller; None if there is no such node."""


@dataclass(slots=True)
class ForeignNodes:
    """The nodes of one engine, by Corral's names.

    1. A node that a look lists for the first time is added to the cluster, and a connection to it is opened.
       Its name is the engine's name, a hyphen and the foreign name (see `node_name`).
    2. A node that is drained in the engine, or whose engine is drained, is drained in Corral too. The reason
       begins with `engine NAME: `. Only a drain with such a reason is ended when the cause is over, so a
       drain by an operator of Corral stays.
    3. A node that two looks in a row do not list is disconnected. If it is temporary and no job holds
       resources on it, it is removed.
    4. Exception: while the engine has attempts on such a node, or has not reported their ends, the node stays
       connected, because its connection reports the ends. It is drained, so no further job starts there.

    Invariant: a node of scheduler.toml, or one that an operator has added, is never changed.
    """

    engine: str
    labels: Mapping[str, str]
    actions: NodeActions
    listed: tuple[ForeignNode, ...] = ()
    _nodes: dict[str, ForeignNode] = field(default_factory=dict)
    _missing: dict[str, int] = field(default_factory=dict)
    _occupied: frozenset[str] = frozenset()
    """The nodes with attempts whose ends Corral has not stored yet."""

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def names(self) -> list[str]:
        return sorted(self._nodes)

    def node_name(self, foreign: str) -> str:
        """Return Corral's name for a node of the engine. No two nodes have the same name, and a node in the
        cluster keeps its name, also after a restart of the controller.

        1. The plain name is the engine's name, a hyphen and the foreign name, such as `slurm-n1`.
        2. A node gets another name if its plain name is longer than a node's name may be, if it contains
           other characters than a node's name, or if a node of another engine has this name. This other name
           is the plain name, with such characters replaced, and a hash of both names.

        Example: the node `b-c` of engine `a` is `a-b-c`. The node `c` of engine `a-b`, which appears later,
        is `a-b-c-0f1d6f0b`.
        """
        plain = f"{self.engine}-{foreign}"
        digest = hashlib.sha256(f"{self.engine}\n{foreign}".encode()).hexdigest()[:HASH_DIGITS]
        hashed = checked_node_name(f"{_OTHER_CHARACTERS.sub('-', plain)[: 62 - HASH_DIGITS]}-{digest}")
        if len(plain) > 63 or _OTHER_CHARACTERS.search(plain):
            return hashed
        there = self.actions.node(plain)
        if there is None:
            # Keep the other name of a node after the node of the other engine was removed.
            return plain if self.actions.node(hashed) is None else hashed
        owner = there.labels.get(ENGINE_LABEL) or there.facts.labels.get(ENGINE_LABEL)
        return plain if owner in (None, self.engine) else hashed

    def foreign_name(self, name: str) -> str | None:
        node = self._nodes.get(name)
        return None if node is None else node.name

    def facts(self, name: str) -> NodeFacts:
        """Return the resources of a node, with the label that names its engine."""
        node = self._nodes.get(name)
        facts = NO_FACTS if node is None else node.facts
        labels = {**facts.labels, **self.labels, ENGINE_LABEL: self.engine}
        return replace(facts, labels=labels, leases=False)

    def problem(self, name: str) -> str:
        """Return the reason for which a node cannot be used; empty if it can."""
        if self._missing.get(name, 0) >= LOOKS_BEFORE_REMOVAL and name not in self._occupied:
            return f"engine {self.engine} no longer lists {self._nodes[name].name}"
        return "" if name in self._nodes else f"engine {self.engine} does not list this node"

    async def update(
        self, listed: tuple[ForeignNode, ...], engine_drain: str, occupied: frozenset[str]
    ) -> None:
        """Add, drain and remove nodes of the cluster, so that it agrees with the nodes of one look. The nodes
        `occupied` have attempts whose ends Corral has not stored yet.
        """
        self.listed, self._occupied = listed, occupied
        found = {self.node_name(each.name): each for each in listed}
        for name in sorted(occupied - found.keys() - self._nodes.keys()):
            self._open_unlisted(name)
        for name, node in found.items():
            self._missing.pop(name, None)
            before = self._nodes.get(name)
            if before is None and not await self.actions.add(name, node):
                continue
            self._nodes[name] = node
            if before is None:
                self.actions.open(name, node)
            elif before.facts != node.facts and not node.pilot:
                self.actions.renew(name)
            await self._follow_drain(name, node, engine_drain)
        for name in [name for name in self._nodes if name not in found]:
            self._missing[name] = self._missing.get(name, 0) + 1
            if name in occupied and self._missing[name] >= LOOKS_BEFORE_REMOVAL:
                gone = replace(self._nodes[name], available=False, why="the engine no longer lists it")
                await self._follow_drain(name, gone, engine_drain)
            else:
                await self._retire(name)

    def _open_unlisted(self, name: str) -> None:
        """Open a connection to a node of the cluster that the engine has not listed since the start of the
        controller.
        """
        there = self.actions.node(name)
        if there is not None:
            self._nodes[name] = ForeignNode(name.removeprefix(f"{self.engine}-"), there.facts)
            self._missing[name] = LOOKS_BEFORE_REMOVAL - 1
            self.actions.open(name, self._nodes[name])

    async def _follow_drain(self, name: str, node: ForeignNode, engine_drain: str) -> None:
        ours = f"engine {self.engine}: "
        reason = engine_drain or ("" if node.available else node.why or "it is drained there")
        there = self.actions.node(name)
        # Do not change a timed drain, because it stops the jobs of a machine that will be interrupted.
        if there is None or there.timed_drain is not None:
            return
        if reason and not there.drained:
            await self.actions.drain(name, ours + reason)
        elif not reason and there.drained and there.why.startswith(ours):
            await self.actions.resume(name)

    async def _retire(self, name: str) -> None:
        there = self.actions.node(name)
        if self._missing[name] < LOOKS_BEFORE_REMOVAL or not self._nodes[name].temporary:
            return
        if there is not None and there.held:
            return
        if there is not None:
            log.info("engine %s: %s is gone and is removed", self.engine, name)
            await self.actions.remove(name)
        del self._nodes[name], self._missing[name]
