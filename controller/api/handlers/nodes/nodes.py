"""Routes of nodes and GPUs: list, show, drain, resume, label, taint, cordon."""

from __future__ import annotations

from dataclasses import replace

from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.api.views.resources import node_view, timed_drain_view
from controller.core.cluster.node import Node, TimedDrain
from controller.core.input_handlers.operator_commands import past_drain
from controller.core.model.inputs import node_inputs
from controller.daemon import Daemon
from wire.api.nodes import GpuList, NodeAction, NodeDrain, NodeList, NodeMarks, NodeView, TimedDrainView


async def listing(call: Call) -> NodeList:
    """List all nodes in the order of their names, with their GPUs and jobs."""
    await call.daemon.settled()
    return NodeList(tuple(live_view(call.daemon, node) for node in call.daemon.state.nodes), call.daemon.seq)


async def show(call: Call) -> NodeView:
    """Show one node: its state and resources, its GPUs and its jobs."""
    return live_view(call.daemon, await call.node())


async def gpus(call: Call) -> GpuList:
    """List the GPUs of all nodes, with their health, measurements and processes."""
    await call.daemon.settled()
    nodes = [live_view(call.daemon, node) for node in call.daemon.state.nodes]
    return GpuList(tuple(gpu for node in nodes for gpu in node.gpus), call.daemon.seq)


async def drain(call: Call, body: NodeDrain) -> NodeView:
    """Drain a node: the node gets no new jobs, and running jobs continue.

    With `empty_by`, jobs that end before that time may still start, and jobs that still run then are moved or
    ended.
    """
    _check_reason(body)
    node = await call.node()
    if body.dry_run:
        view = live_view(call.daemon, node)
        return view if body.empty_by is None else replace(view, drain=_drain_view(call, node, body))
    await call.ask(node_inputs.Drain(node.name, call.caller.user, body.why, body.empty_by))
    return live_view(call.daemon, node)


def _drain_view(call: Call, node: Node, body: NodeDrain) -> TimedDrainView | None:
    """Return the API's view of the timed drain in the request. Raise Rejected if its time is in the past."""
    assert body.empty_by is not None
    past = past_drain(body.empty_by, call.daemon.now())
    if past is not None:
        raise Rejected(past)
    return timed_drain_view(call.daemon.engine, node, TimedDrain(body.empty_by, call.caller.user, body.why))


async def resume(call: Call, _: NodeAction) -> NodeView:
    """Resume a drained node, so that the node gets new jobs."""
    node = await call.node()
    await call.ask(node_inputs.Resume(node.name, call.caller.user))
    return live_view(call.daemon, node)


async def mark(call: Call, marks: NodeMarks) -> NodeView:
    """Set or remove labels and taints. Jobs that do not tolerate a new NoExecute taint are evicted."""
    node = await call.node()
    await call.ask(node_inputs.MarkNode(node.name, call.caller.user, marks.labels, marks.taints))
    return live_view(call.daemon, node)


async def cordon_gpu(call: Call, action: NodeAction) -> NodeView:
    """Cordon one GPU: the GPU gets no new jobs until an operator resumes the GPU."""
    _check_reason(action)
    node = await call.node()
    gpu = gpu_index(node, call.path["gpu"])
    await call.ask(node_inputs.CordonGpu(node.name, gpu, call.caller.user, action.why))
    return live_view(call.daemon, node)


async def resume_gpu(call: Call, _: NodeAction) -> NodeView:
    """Resume a cordoned GPU. The GPU gets new jobs after a health check has passed."""
    node = await call.node()
    await call.ask(node_inputs.ResumeGpu(node.name, gpu_index(node, call.path["gpu"]), call.caller.user))
    return live_view(call.daemon, node)


def _check_reason(action: NodeAction | NodeDrain) -> None:
    if len(action.why) > 500:
        raise rejected("invalid", "must be at most 500 characters", "why")


def gpu_index(node: Node, number: str) -> int:
    """Return the index of a GPU from the number in its name (the 3 of gpu01:3). Raise Rejected if the node
    has no such GPU.
    """
    found = next((gpu.index for gpu in node.facts.gpus if gpu.number == number), None)
    if found is None:
        there = ", ".join(gpu.number for gpu in node.facts.gpus) or "none"
        message = f"node {node.name} has no GPU {number}"
        raise rejected("not_found", message, "gpu", f"Its GPUs are {there}.")
    return found


def live_view(daemon: Daemon, node: Node) -> NodeView:
    """Return the API's view of a node, with the GPU measurements that its agent sent last."""
    agents, name = daemon.agents, node.name
    now, network = daemon.now(), daemon.engine.pipeline.network
    idle = agents.idle_gpus.since(name, now)
    readings, processes = agents.readings.get(name, {}), agents.processes.get(name, ())
    view = node_view(daemon.state, node, readings, processes, idle, network, now)
    return replace(view, drain=timed_drain_view(daemon.engine, node, node.timed_drain))
