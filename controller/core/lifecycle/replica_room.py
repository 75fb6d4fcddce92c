"""Keeps resources for a replica of a service until the replica starts. The resources are those of the
replica's last attempt, or those of the older replica that the new replica replaces.

The replica is nominated for the nodes. A nomination keeps nodes for a job that cannot start on these nodes
yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.lifecycle.requeue_policy import HARDWARE_ENDS
from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import JobRequeued
from controller.core.model.events.nominations import PreemptionPlanned, Victim
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.names import JobState, Reason

KEPT_ROOM = "kept-room"
"""The strategy name in the event that keeps the former resources of a replica while the replica waits for its
restart.
"""
SUCCESSOR = "service"
"""The strategy name in the event that keeps the resources of an old replica for the new replica that replaces
it.
"""
_NOT_THERE = (*HARDWARE_ENDS, Reason.GPU_HELD, Reason.NODE_UNFIT, Reason.PREEMPTED, Reason.EVICTED)
"""Reasons for the end of an attempt after which no resources are kept for the next attempt, because it must
not, or need not, run on the same node.
"""


def keep_for_restart(
    state: State, job: Job, requeued: JobRequeued, allocations: tuple[Allocation, ...], quality: int
) -> Iterator[PreemptionPlanned]:
    """Yield the nomination that keeps the resources of a failed replica until its restart delay is over.
    `requeued` is the event that queued the replica again, and `allocations` are the replica's former
    resources.

    Yield nothing if these nodes take no jobs. Also yield nothing if the next attempt should run on other
    nodes, for example after a hardware failure.
    """
    if job.replica is None or not requeued.restart or requeued.reason in _NOT_THERE or job.held:
        return
    if job.state is JobState.QUEUED and can_stay(state, allocations):
        until = requeued.at if requeued.again_at is None else requeued.again_at
        yield PreemptionPlanned(job.id, requeued.at, allocations, quality, (), KEPT_ROOM, until)


def keep_for_successor(
    state: State, job: Job, before: Job, until: float, now: float
) -> Iterator[PreemptionPlanned]:
    """Yield the nomination that keeps the resources of `before`, an older replica that is being ended, for
    the replica `job`. The nomination lasts until the time `until`.

    Yield nothing if the two replicas have different requests, or if the nodes take no jobs.

    If `before` is not running but only nominated for these resources, the new nomination waits for the same
    victims.
    """
    held = tuple(member.allocation for member in before.running) or before.claim
    if before.ask == job.ask and can_stay(state, held):
        own = (Victim(before.id, before.unsaved(now), before.attempt),)
        victims = own if before.unended else before.claim_from
        quality = before.claim_quality if before.quality is None else before.quality
        yield PreemptionPlanned(job.id, now, held, quality, victims, SUCCESSOR, until)


def can_stay(state: State, allocations: tuple[Allocation, ...]) -> bool:
    """Return whether all nodes of these allocations are up and take jobs. Return False if there are no
    allocations.
    """
    nodes = [state.nodes.get(each.node) for each in allocations]
    return bool(nodes) and all(node is not None and node.up and not node.drained for node in nodes)
