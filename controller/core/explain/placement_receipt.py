"""Shows why a running job was placed on its nodes: the points of these nodes and of the best other nodes at
the time of the placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from controller.core.cluster.nodes import Nodes
from controller.core.explain.node_scores import best_scores
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.model.job import Job, Member
from controller.core.placement.placer import Placer
from controller.core.state.state import State
from wire.api.reasons import NodeScore


def placement_receipt(state: State, pipeline: SchedulingPolicy, job: Job) -> tuple[NodeScore, ...]:
    """Return the nodes of a running job with the points of each scorer at its placement, and the best other
    nodes on which the job would have fitted. The best node is first.

    Nothing is recorded when a job is placed, so that placements do not become slower. Instead:
    1. Copy the nodes. On the copy, free what was allocated at the placement of this job or later.
    2. On the copy, allocate again what jobs held at the time of the placement and have freed since then.
    3. Let the filters and the scorers rate the nodes of the copy.

    The receipt is not exact in these cases: a node has changed since the placement (its labels, drains or
    GPUs); an attempt of another job that held a node then was followed by another attempt, or is no longer in
    memory; the scorer `thrift` has learned from later requests. Jobs that were placed at the same second are
    taken as placed in the order of their ids.

    Cost: O(jobs in memory + nodes * scorers).
    """
    nodes = state.nodes.copy()
    _rewind(nodes, state, job)
    placer = Placer(nodes, pipeline)
    shape = placer.shape(job.ask)
    part = job.ask.part if shape is None else shape.part
    chosen = frozenset(nodes.by_name[name].row for name in job.members if name in nodes.by_name)
    rated = placer.ranking(part).fits.copy()
    rated[list(chosen)] = True
    return best_scores(placer, part, np.flatnonzero(rated), fits=True, chosen=chosen)


def _rewind(nodes: Nodes, state: State, job: Job) -> None:
    """Give the copied nodes the allocations that they had when the job was placed (steps 1 and 2)."""
    then = _placement_order(job)
    again = []
    for other in state.jobs.values():
        if other.placed_at is None:
            continue
        before = _placement_order(other) < then
        for node, member in _members(nodes, other):
            held = member.ended_at is None and other.id in nodes.by_name[node].held
            held_then = before and (member.ended_at is None or member.ended_at > then[0])
            if held and not held_then:
                nodes.free(other.id, [node])
                if other.ask.part.social:
                    nodes.job_affinity.remove(other.ask.part, node)
            elif held_then and not held:
                again.append((other, node, member))
    for other, node, member in again:
        nodes.hold(other.id, [member.allocation])
        if other.ask.part.social:
            nodes.job_affinity.add(other.ask.part, node)


def _placement_order(job: Job) -> tuple[float, int]:
    return (math.inf if job.placed_at is None else job.placed_at), job.id


def _members(nodes: Nodes, job: Job) -> Iterator[tuple[str, Member]]:
    """Yield the members of the job on nodes that still exist with their GPUs."""
    for name, member in job.members.items():
        node = nodes.get(name)
        if node is not None and all(hold.uuid in node.slots for hold in member.allocation.gpus):
            yield name, member
