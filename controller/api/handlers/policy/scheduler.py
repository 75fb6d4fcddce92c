"""Routes of the scheduler: its policy, its latest cycle, a cycle on request, the topology of the nodes."""

from __future__ import annotations

import asyncio

from controller.api.handlers.policy.profiles import POLICY
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.cluster.network_tree import NetworkTopology
from controller.core.state.state import State
from wire.api.policy.scheduler import (
    GpuPlace,
    NodeTopology,
    PassView,
    SchedulerView,
    SwitchView,
    TopologyView,
    Triggered,
)
from wire.names import JobState

LONGEST_S = 30.0
"""Seconds to wait for a requested scheduling cycle. After this time the request is refused with the code
busy.
"""


async def show(call: Call) -> SchedulerView:
    """Show the scheduling policy, the numbers of jobs, and the latest scheduling cycle."""
    daemon = call.daemon
    await daemon.settled()
    state, config, counters = daemon.state, daemon.config, daemon.counters
    passes = sum(counters.cycles.counts)
    last, waiting = counters.last_pass, len(state.queue)
    live = [job.state for job in state.live()]
    return SchedulerView(
        config.scheduler.order.name,
        config.scheduler.backfill,
        config.scheduler.model_dump(mode="json", include=set(POLICY), exclude_none=True),
        config.preemption.model_dump(mode="json"),
        tuple(each.name for each in state.profiles),
        daemon.engine.pipeline.rules.provider.name,
        waiting,
        max(0, live.count(JobState.QUEUED) - waiting),
        live.count(JobState.SCHEDULED) + live.count(JobState.RUNNING),
        passes,
        counters.cycles.total_s / passes if passes else None,
        None if last is None else PassView(last.at, last.seconds, last.placed),
        daemon.seq,
    )


async def trigger(call: Call) -> Triggered:
    """Run a scheduling cycle at once. Return how many jobs the cycle placed, and how many still wait."""
    try:
        async with asyncio.timeout(LONGEST_S):
            scheduled = await call.daemon.run_pass()
    except TimeoutError:
        message = f"the scheduling cycle has not finished after {LONGEST_S:g} s"
        raise rejected("busy", message, hint="Look at GET /v1/scheduler in a moment.") from None
    return Triggered(scheduled, len(call.daemon.state.queue), call.daemon.seq)


async def topology(call: Call) -> TopologyView:
    """Show the network switches above each node, and the NUMA nodes and NVLinks of its GPUs."""
    await call.daemon.settled()
    state = call.daemon.state
    nodes = tuple(_nodes(state, call.daemon.engine.pipeline.network))
    return TopologyView(_switches(nodes), nodes, call.daemon.seq)


def _nodes(state: State, tree: NetworkTopology | None) -> list[NodeTopology]:
    labels = state.nodes.columns.labels
    return [
        NodeTopology(
            node.name,
            () if tree is None else tree.path(labels[node.row]),
            node.facts.numa_nodes,
            tuple(GpuPlace(gpu.index, gpu.model, gpu.numa, gpu.links) for gpu in node.facts.gpus),
        )
        for node in state.nodes.rows
    ]


def _switches(nodes: tuple[NodeTopology, ...]) -> tuple[SwitchView, ...]:
    """Return all switches above these nodes. Each switch comes after the switch above it."""
    below: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        for depth in range(len(node.switches)):
            below.setdefault(node.switches[: depth + 1], []).append(node.name)
    return tuple(
        SwitchView(path[-1], path[-2] if len(path) > 1 else "", tuple(sorted(found)))
        for path, found in sorted(below.items())
    )
