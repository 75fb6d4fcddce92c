"""Adds nodes to the cluster and removes nodes, with their connections and their SSH host keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from controller.config import Config
from controller.core.model.decision.decision import Refusal, Reply
from controller.core.model.inputs import node_inputs
from controller.core.model.inputs.input import Input
from controller.core.state.state import State
from controller.daemon.agent_links import AgentLinks
from controller.nodes.link_factory import LinkFactory
from controller.nodes.ssh.known_hosts import read_legacy_file
from wire.cluster.hosts import HostSpec


class NodeChanges:
    """Adds and removes nodes, in the state of the engine and in the connections to agents."""

    def __init__(
        self, ask: Callable[[Input], Awaitable[Reply]], agents: AgentLinks, hosts: LinkFactory
    ) -> None:
        """`ask` passes an input to the engine and returns the reply."""
        self._ask = ask
        self._agents = agents
        self._hosts = hosts

    async def add(self, name: str, host: HostSpec, by: str) -> Reply:
        """Add a node, or change the host settings of an existing node. Attempts on an existing node
        continue."""
        reply = await self._ask(node_inputs.AddNode(name, host.labels, host, by))
        if not isinstance(reply, Refusal):
            await self._agents.close_link(name)
            self._agents.open(self._hosts.link(name, host))
        return reply

    async def remove(self, name: str, by: str) -> Reply:
        """Remove a node. If the engine does not refuse the removal, also close the connection to the node's
        agent."""
        reply = await self._ask(node_inputs.RemoveNode(name, by))
        if not isinstance(reply, Refusal):
            await self._agents.remove_node(name)
        return reply

    async def import_host_keys(self, config: Config, state: State) -> None:
        """Pin the SSH host keys from the file of an older controller version, then rename the file."""
        path = config.state_dir / "known_hosts"
        nodes = {*config.nodes, *state.nodes.by_name}
        for node, key in read_legacy_file(path).items():
            if node in nodes and node not in state.host_keys:
                await self._ask(node_inputs.PinKey(node, key, path.name))
        if path.exists():
            path.rename(path.with_name(f"{path.name}.imported"))
