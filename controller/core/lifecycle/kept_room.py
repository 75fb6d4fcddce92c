"""Keeps the resources of a service's replica for its next attempt or its successor, with a nomination."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.lifecycle.requeue_policy import HARDWARE_ENDS
from controller.core.model.events import Allocation, JobRequeued, PreemptionPlanned, Victim
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.names import JobState, Reason

KEPT_ROOM = "kept-room"
"""The strategy in the nomination of a replica that waits for its restart."""
SUCCESSOR = "service"
"""The strategy in the nomination of a replica that gets the resources of the replica before it."""
_NOT_THERE = (*HARDWARE_ENDS, Reason.GPU_HELD, Reason.NODE_UNFIT, Reason.PREEMPTED, Reason.EVICTED)
"""Causes of an end after which the next attempt must not or need not run on the same node."""


def keep_for_restart(
    state: State, job: Job, requeued: JobRequeued, allocations: tuple[Allocation, ...], quality: int
) -> Iterator[PreemptionPlanned]:
    """Yield the nomination that keeps the resources of a failed replica until its restart delay is over.

    Yield nothing if its nodes or the cause of its end forbid a restart there.
    """
    if job.replica is None or not requeued.restart or requeued.reason in _NOT_THERE or job.held:
        return
    if job.state is JobState.QUEUED and can_stay(state, allocations):
        until = requeued.at if requeued.again_at is None else requeued.again_at
        yield PreemptionPlanned(job.id, requeued.at, allocations, quality, (), KEPT_ROOM, until)


def keep_for_successor(
    state: State, job: Job, before: Job, until: float, now: float
) -> Iterator[PreemptionPlanned]:
    """Yield the nomination that gives a replica the resources of the replica before it, which is being ended.
    Yield nothing if the two requests differ, or if the nodes take no jobs.
    """
    held = tuple(member.allocation for member in before.running) or before.claim
    if before.ask == job.ask and can_stay(state, held):
        victims = (Victim(before.id, before.unsaved(now), before.attempt),) if before.unended else ()
        quality = before.claim_quality if before.quality is None else before.quality
        yield PreemptionPlanned(job.id, now, held, quality, victims, SUCCESSOR, until)


def can_stay(state: State, allocations: tuple[Allocation, ...]) -> bool:
    """Return whether all nodes of these allocations are up and take jobs; False without allocations."""
    nodes = [state.nodes.get(each.node) for each in allocations]
    return bool(nodes) and all(node is not None and node.up and not node.drained for node in nodes)
