"""Nodes: list, show, drain, resume, mark; and their GPUs."""

from __future__ import annotations

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.api.views import node_view
from controller.core import inputs
from controller.core.inputs import Refusal
from controller.core.nodes import Node
from wire.api.nodes import GpuList, NodeAction, NodeList, NodeMarks, NodeView


async def listing(call: Call) -> NodeList:
    """All nodes by name, with their GPUs and who holds them."""
    await call.daemon.settled()
    return NodeList(tuple(view(call, node) for node in call.daemon.state.nodes), call.daemon.seq)


async def show(call: Call) -> NodeView:
    """One node."""
    return view(call, await call.node())


async def gpus(call: Call) -> GpuList:
    """All GPUs of all nodes, with health, readings and processes."""
    await call.daemon.settled()
    views = [view(call, node) for node in call.daemon.state.nodes]
    return GpuList(tuple(gpu for view in views for gpu in view.gpus), call.daemon.seq)


async def drain(call: Call) -> NodeView:
    """Give a node no new work; what runs there ends by itself."""
    call.need_operator("drain nodes")
    action: NodeAction = call.body
    if len(action.why) > 500:
        raise Rejected(Refusal("invalid", "must be at most 500 characters", "why"))
    node = await call.node()
    await call.ask(inputs.Drain(node.name, call.caller.user, action.why))
    return view(call, node)


async def resume(call: Call) -> NodeView:
    """Give a drained node work again."""
    call.need_operator("resume nodes")
    node = await call.node()
    await call.ask(inputs.Resume(node.name, call.caller.user))
    return view(call, node)


async def mark(call: Call) -> NodeView:
    """Set labels and taints, or take them away; jobs that do not bear a NoExecute taint have to go."""
    call.need_operator("label and taint nodes")
    marks: NodeMarks = call.body
    node = await call.node()
    await call.ask(inputs.MarkNode(node.name, call.caller.user, marks.labels, marks.taints))
    return view(call, node)


async def cordon_gpu(call: Call) -> NodeView:
    """Give one GPU of a node no new work, until it is resumed."""
    call.need_operator("cordon GPUs")
    action: NodeAction = call.body
    if len(action.why) > 500:
        raise Rejected(Refusal("invalid", "must be at most 500 characters", "why"))
    node = await call.node()
    await call.ask(inputs.CordonGpu(node.name, _index(call), call.caller.user, action.why))
    return view(call, node)


async def resume_gpu(call: Call) -> NodeView:
    """Give a GPU work again, once it has passed a look."""
    call.need_operator("resume GPUs")
    node = await call.node()
    await call.ask(inputs.ResumeGpu(node.name, _index(call), call.caller.user))
    return view(call, node)


def _index(call: Call) -> int:
    text = call.path["gpu"]
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise Rejected(Refusal("not_found", f"{text!r} is not the number of a GPU", "gpu"))
    return int(text)


def view(call: Call, node: Node) -> NodeView:
    daemon, name = call.daemon, node.name
    return node_view(
        daemon.state,
        node,
        daemon.samples.get(name, {}),
        daemon.processes.get(name, ()),
        daemon.idleness.since.get(name, {}),
    )
