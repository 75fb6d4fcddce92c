"""Hosts by SSH: look at them, add them, trust their keys, remove them."""

from __future__ import annotations

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.api.nodes import view
from controller.core import inputs
from controller.core.inputs import Refusal
from controller.nodes.knownhosts import plainly, readable
from wire.api.nodes import HostKey, NodeRequest, NodeView, Preflight
from wire.hosts import HostSpec, host_problems, node_name


async def preflight(call: Call) -> Preflight:
    """Ask a host everything that joining needs; changes nothing but what the agent needs on the host."""
    call.need_operator("look at hosts")
    request: NodeRequest = call.body
    host = request.host or await _host_of(call, request.name)
    _check(request.name, host, request.host_key)
    return await call.daemon.hosts.preflight(request.name, host, request.host_key)


async def add(call: Call) -> NodeView:
    """Add a node at a host, or give one another way to its host; what runs there goes on."""
    call.need_operator("add nodes")
    request: NodeRequest = call.body
    if request.host is None:
        raise Rejected(Refusal("invalid", "is missing", "host"))
    _check(request.name, request.host, request.host_key)
    _not_configured(call, request.name)
    if request.host_key:
        await call.ask(inputs.PinKey(request.name, plainly(request.host_key), call.caller.user))
    reply = await call.daemon.add_node(request.name, request.host, call.caller.user)
    if isinstance(reply, Refusal):
        raise Rejected(reply)
    return view(call, call.daemon.state.nodes.by_name[request.name])


async def trust(call: Call) -> NodeView:
    """Pin the key that a node's host has from now on."""
    call.need_operator("trust host keys")
    node = await call.node()
    body: HostKey = call.body
    host = await _host_of(call, node.name)
    _check(node.name, host, body.host_key)
    await call.ask(inputs.PinKey(node.name, plainly(body.host_key), call.caller.user))
    await call.daemon.unlink(node.name)
    call.daemon.link(call.daemon.hosts.link(node.name, host))
    return view(call, node)


async def remove(call: Call) -> NodeView:
    """Remove a node that no job needs any more."""
    call.need_operator("remove nodes")
    node = await call.node()
    _not_configured(call, node.name)
    before = view(call, node)
    reply = await call.daemon.remove_node(node.name, call.caller.user)
    if isinstance(reply, Refusal):
        raise Rejected(reply)
    return before


async def lost(call: Call) -> NodeView:
    """Declare that nothing runs on a node any more: its jobs end, or start anew elsewhere."""
    call.need_operator("declare nodes lost")
    node = await call.node()
    await call.ask(inputs.DeclareLost(node.name, call.caller.user))
    return view(call, node)


async def _host_of(call: Call, name: str) -> HostSpec:
    """How a node that is there is reached."""
    await call.daemon.settled()
    node, configured = call.daemon.state.nodes.get(name), call.daemon.config.nodes.get(name)
    host = configured.host if configured is not None else node.host if node is not None else None
    if host is not None:
        return host
    if configured is not None:
        raise Rejected(Refusal("conflict", f"node {name} is on the controller's own machine", "node"))
    raise Rejected(
        Refusal("not_found", f"there is no node {name!r}", "node", "'corral nodes' shows what there is.")
    )


def _not_configured(call: Call, name: str) -> None:
    if name in call.daemon.config.nodes:
        raise Rejected(
            Refusal(
                "conflict",
                f"node {name} stands in scheduler.toml",
                "name",
                "Change it there, and start the controller again.",
            )
        )


def _check(name: str, host: HostSpec, host_key: str) -> None:
    try:
        node_name(name)
    except ValueError as error:
        raise Rejected(Refusal("invalid", str(error), "name")) from None
    for where, message in host_problems(host):
        raise Rejected(Refusal("invalid", message, f"host.{where}"))
    if host_key and not readable(host_key):
        raise Rejected(Refusal("invalid", "is not a public key as OpenSSH writes it", "host_key"))
