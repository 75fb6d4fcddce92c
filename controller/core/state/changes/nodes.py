"""Applies events about nodes, hosts and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.cluster.gpus.gpu_health import GpuCondition
from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.cluster.node import Node, TimedDrain
from controller.core.model.events.nodes import (
    DrainBegan,
    GpuHealthRecorded,
    HostKeyPinned,
    NodeAdded,
    NodeDeclaredLost,
    NodeDrained,
    NodeJoined,
    NodeMarked,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    NodeWentDown,
)
from controller.core.state.state import State
from wire.names import GpuHealth


def _node_added(state: State, event: NodeAdded) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        marks = NodeOverrides(configured=event.taints)
        state.nodes.insert(Node(event.node, dict(event.labels), since=event.at, host=event.host, marks=marks))
    else:
        node.host = event.host
        state.nodes.set_labels(node, event.labels, replace(node.marks, configured=event.taints))


def _node_marked(state: State, event: NodeMarked) -> None:
    node = state.nodes.by_name[event.node]
    known = {**node.facts.labels, **node.labels}
    state.nodes.set_labels(node, node.labels, node.marks.updated(event.labels, event.taints, known))


def _node_removed(state: State, event: NodeRemoved) -> None:
    node = state.nodes.by_name[event.node]
    node.timed_drain = None
    state.reservations.follow_drain(node)
    state.nodes.remove(node)
    state.host_keys.pop(event.node, None)
    state.offqueue.leave(event.node, event.at, state.shares)


def _host_key_pinned(state: State, event: HostKeyPinned) -> None:
    state.host_keys[event.node] = event.key


def _node_joined(state: State, event: NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = Node(event.node, {})
        state.nodes.insert(node)
    node.up, node.why, node.since = True, node.why if node.drained else "", event.at
    node.down = False
    node.version = event.version
    models = state.models_of_node(event.node)
    state.nodes.set_facts(node, event.facts, event.boot_id, event.overcommit)
    state.note_gpu_models(event.node, models)


def _node_went_away(state: State, event: NodeWentAway) -> None:
    node = state.nodes.by_name[event.node]
    node.up, node.since = False, event.at
    if not node.drained:
        node.why = event.why
    state.offqueue.leave(event.node, event.at, state.shares)
    state.nodes.refresh(node)


def _node_went_down(state: State, event: NodeWentDown) -> None:
    node = state.nodes.by_name[event.node]
    node.down = True
    state.nodes.claims_to_check.update(node.claims)


def _node_declared_lost(state: State, event: NodeDeclaredLost) -> None:
    node = state.nodes.by_name[event.node]
    node.down = True
    if not node.drained:
        node.why = f"declared lost by {event.by}"


def _node_drained(state: State, event: NodeDrained) -> None:
    node = state.nodes.by_name[event.node]
    if event.empty_by is None:
        node.drained, node.why, node.since, node.timed_drain = True, event.why, event.at, None
    else:
        node.timed_drain = TimedDrain(event.empty_by, event.by, event.why)
    state.reservations.follow_drain(node)
    state.nodes.refresh(node)


def _drain_began(state: State, event: DrainBegan) -> None:
    node = state.nodes.by_name[event.node]
    assert node.timed_drain is not None
    node.drained, node.why, node.since = True, node.timed_drain.why, event.at
    node.timed_drain = None
    state.reservations.follow_drain(node)
    state.nodes.refresh(node)


def _node_resumed(state: State, event: NodeResumed) -> None:
    node = state.nodes.by_name[event.node]
    if node.drained:
        node.drained, node.why, node.since = False, "", event.at
    node.timed_drain = None
    state.reservations.follow_drain(node)
    state.nodes.refresh(node)


def _gpu_health_recorded(state: State, event: GpuHealthRecorded) -> None:
    node = state.nodes.by_name[event.node]
    node.health[event.uuid] = GpuCondition(
        GpuHealth(event.health), event.why, event.needs, event.falls, event.good, event.at, event.due
    )
    state.nodes.refresh(node)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    NodeAdded: _node_added,
    NodeRemoved: _node_removed,
    HostKeyPinned: _host_key_pinned,
    NodeMarked: _node_marked,
    NodeJoined: _node_joined,
    NodeWentAway: _node_went_away,
    NodeWentDown: _node_went_down,
    NodeDeclaredLost: _node_declared_lost,
    NodeDrained: _node_drained,
    DrainBegan: _drain_began,
    NodeResumed: _node_resumed,
    GpuHealthRecorded: _gpu_health_recorded,
}
