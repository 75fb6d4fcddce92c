"""Undoes a move of a running job to other nodes. The job returns to its old nodes if they are free; otherwise
it returns to the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.cluster.node_table import ABSENT
from controller.core.model.allocation import Allocation
from controller.core.model.events.nominations import MoveUndone, PreemptionDropped
from controller.core.model.job import Job, Move
from controller.core.placement.placer import Placer
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State


def undo_move(
    state: State, placer: Placer, job: Job, why: str, now: float, *, back: bool = True
) -> Iterator[PreemptionDropped | MoveUndone]:
    """Yield the events that undo the move of a job to other nodes. The caller must apply each event before it
    requests the next event.

    1. The job gets its old nodes again under three conditions: `back` is True, the nodes take jobs, and the
       job still holds its old allocations or they are free. If the job was moved for another job that has not
       started yet, the other job loses its nomination and waits in the queue again.
    2. If one of these conditions does not hold, the job waits in the queue.
    """
    move = job.move
    assert move is not None
    if back and _nodes_open(state, placer, job, move, now):
        other = _waiting_for_move(state, job, move)
        if job.unended or _has_room(state, other, move.origin):
            if other is not None:
                yield PreemptionDropped(other.id, now, f"job {job.label} could not be moved: {why}")
            yield MoveUndone(job.id, now, job.attempt, why, move.origin)
            return
    yield MoveUndone(job.id, now, job.attempt, why)


def _waiting_for_move(state: State, job: Job, move: Move) -> Job | None:
    """Return the waiting job for which this job was moved away from its nodes.

    Return None if this job was moved for another reason, or if the waiting job has started since.
    """
    other = state.jobs.get(move.for_job or 0)
    if other is None or not other.claim:
        return None
    waits = any((each.job, each.attempt) == (job.id, move.attempt) for each in other.claim_from)
    return other if waits else None


def _nodes_open(state: State, placer: Placer, job: Job, move: Move, now: float) -> bool:
    """Return whether the old nodes of a moved job take jobs, admit this job and still have its former GPUs.

    The GPUs may be in use by other jobs.
    """
    columns, shape, barred = state.nodes.columns, placer.shape(job.ask), barred_nodes(state, job, now)
    nodes = [state.nodes.get(each.node) for each in move.origin]
    rows = [node.row for node in nodes if node is not None]
    if shape is None or len(rows) < len(nodes) or (barred is not None and barred[rows].any()):
        return False
    return bool(columns.open[rows].all()) and all(
        slot is not None and columns.gpu_free[node.row, slot] != ABSENT
        for node, each in zip(nodes, move.origin, strict=True)
        if node is not None
        for slot in (node.slots.get(hold.uuid) for hold in each.gpus)
    )


def _has_room(state: State, waiting: Job | None, allocations: tuple[Allocation, ...]) -> bool:
    """Return whether the allocations are free. Resources that are kept for `waiting`, the job for which the
    moved job had to leave, count as free.
    """
    nodes = state.nodes
    if waiting is not None:
        nodes = nodes.copy()
        for claim in waiting.claim:
            nodes.unclaim(waiting.id, claim.node)
    columns = nodes.columns
    for each in allocations:
        node = nodes.by_name[each.node]
        if columns.cpu_free[node.row] < each.cpu_milli or columns.memory_free[node.row] < each.memory_mib:
            return False
        if columns.scratch_free[node.row] < each.scratch_mib:
            return False
        if any(columns.gpu_free[node.row, node.slots[hold.uuid]] < hold.milli for hold in each.gpus):
            return False
    return True
