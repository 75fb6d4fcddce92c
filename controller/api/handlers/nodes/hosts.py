"""Routes of hosts that the controller reaches by SSH: check, add, pin the host key, remove, declare lost."""

from __future__ import annotations

from controller.api.handlers.nodes.nodes import live_view
from controller.api.server.access import host_refusal
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.core.model.decision.decision import Refusal, no_such_node
from controller.core.model.inputs import node_inputs
from controller.nodes.ssh.known_hosts import is_public_key, without_comment
from wire.api.nodes import HostKey, NodeAction, NodeRequest, NodeView, Preflight
from wire.cluster.hosts import HostSpec, checked_node_name, host_problems


async def preflight(call: Call, request: NodeRequest) -> Preflight:
    """Check whether a host can become a node. The check writes only the agent's program files to the host.

    If the request has no host settings, check the host of the node with this name.
    """
    configured = call.daemon.config.nodes.get(request.name)
    if request.host is None and configured is not None and configured.host is None:
        # Check without SSH, because the agent of this node runs on the controller's own machine.
        return await call.daemon.hosts.local_preflight(request.name)
    host = request.host or await _host_of(call, request.name)
    _check(request.name, host, request.host_key)
    _permit_host(call, request.name, host)
    return await call.daemon.hosts.preflight(request.name, host, request.host_key)


async def add(call: Call, request: NodeRequest) -> NodeView:
    """Add a node, or change the SSH settings of its host. Running jobs on the node continue."""
    if request.host is None:
        raise rejected("invalid", "is missing", "host")
    _check(request.name, request.host, request.host_key)
    await call.daemon.settled()
    _permit_host(call, request.name, request.host)
    _not_configured(call, request.name)
    if request.host_key:
        await call.ask(node_inputs.PinKey(request.name, without_comment(request.host_key), call.caller.user))
    reply = await call.daemon.node_changes.add(request.name, request.host, call.caller.user)
    if isinstance(reply, Refusal):
        raise Rejected(reply)
    return live_view(call.daemon, call.daemon.state.nodes.by_name[request.name])


async def trust(call: Call, body: HostKey) -> NodeView:
    """Pin the SSH host key of a node, and connect to the node again."""
    node = await call.node()
    host = await _host_of(call, node.name)
    _check(node.name, host, body.host_key)
    await call.ask(node_inputs.PinKey(node.name, without_comment(body.host_key), call.caller.user))
    await call.daemon.agents.close_link(node.name)
    call.daemon.agents.open(call.daemon.hosts.link(node.name, host))
    return live_view(call.daemon, node)


async def remove(call: Call, _: NodeAction) -> NodeView:
    """Remove a node that has no jobs."""
    node = await call.node()
    _not_configured(call, node.name)
    before = live_view(call.daemon, node)
    reply = await call.daemon.node_changes.remove(node.name, call.caller.user)
    if isinstance(reply, Refusal):
        raise Rejected(reply)
    return before


async def lost(call: Call, _: NodeAction) -> NodeView:
    """Declare a node lost: its jobs end, or are queued again if their settings permit a restart."""
    node = await call.node()
    await call.ask(node_inputs.DeclareLost(node.name, call.caller.user))
    return live_view(call.daemon, node)


async def _host_of(call: Call, name: str) -> HostSpec:
    """Return the SSH settings of the node `name`. Raise Rejected if there is no such node, or if its agent
    runs on the controller's machine without SSH."""
    await call.daemon.settled()
    node, configured = call.daemon.state.nodes.get(name), call.daemon.config.nodes.get(name)
    host = configured.host if configured is not None else node.host if node is not None else None
    if host is not None:
        return host
    if configured is not None:
        raise rejected("conflict", f"node {name} is on the controller's own machine", "node")
    raise Rejected(no_such_node(name))


def _permit_host(call: Call, name: str, host: HostSpec) -> None:
    """Raise Rejected if the caller may not set these host settings for the node `name` (see
    `host_refusal`).
    """
    node, configured = call.daemon.state.nodes.get(name), call.daemon.config.nodes.get(name)
    present = configured.host if configured is not None else node.host if node is not None else None
    refused = host_refusal(call.caller, host, present)
    if refused is not None:
        raise Rejected(refused)


def _not_configured(call: Call, name: str) -> None:
    if name in call.daemon.config.nodes:
        raise rejected(
            "conflict",
            f"node {name} is in scheduler.toml",
            hint="Change it there; 'corral config apply' then reads the file again.",
        )


def _check(name: str, host: HostSpec, host_key: str) -> None:
    try:
        checked_node_name(name)
    except ValueError as error:
        raise rejected("invalid", str(error), "name") from None
    for where, message in host_problems(host):
        raise rejected("invalid", message, f"host.{where}")
    if host_key and not is_public_key(host_key):
        raise rejected("invalid", "is not a public key in the format of OpenSSH", "host_key")
