"""Taking back a move: the job returns to where it was if that is free, else to its place in the queue."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.columns import ABSENT
from controller.core.events import Allocation, JobEnded, JobRequeued, MoveUndone, PreemptionDropped
from controller.core.jobs import Job, Move
from controller.core.placement import Placer
from controller.core.state import State
from wire.words import JobState, Reason

BEYOND = (
    Reason.LAUNCH_FAILED,
    Reason.NODE_LOST,
    Reason.SUPERVISOR_LOST,
    Reason.GPU_FAILED,
    Reason.MEMBER_FAILED,
)
"""Ends of an attempt that never ran: the doing of the place it was moved to, for elsewhere it did run."""


def requeued(job: Job, ended: JobEnded) -> JobRequeued | None:
    """What takes the place of this outcome if the job could not start where it was moved to."""
    move = job.move
    if (
        move is None
        or job.attempt == move.attempt
        or job.started_at is not None
        or job.stopping not in (None, Reason.MEMBER_FAILED)
        or ended.state is not JobState.FAILED
        or ended.reason not in BEYOND
    ):
        return None
    detail = f"could not start on {', '.join(move.to)}: {ended.detail}"
    return JobRequeued(job.id, ended.at, job.attempt, ended.reason, detail)


def undone(
    state: State, placer: Placer, job: Job, why: str, now: float, *, back: bool = True
) -> Iterator[PreemptionDropped | MoveUndone]:
    """What it takes to undo the job's move; the caller makes each true before asking for the next.

    Somebody for whom it moved and who has not started yet waits again: the place is the mover's own.
    """
    move = job.move
    assert move is not None
    if back and _usable(state, placer, job, move, now):
        other = _favoured(state, job, move)
        if job.unended or _free(state, other, move.origin):
            if other is not None:
                yield PreemptionDropped(other.id, now, f"job {job.label} could not be moved: {why}")
            yield MoveUndone(job.id, now, job.attempt, why, move.origin)
            return
    yield MoveUndone(job.id, now, job.attempt, why)


def _favoured(state: State, job: Job, move: Move) -> Job | None:
    """The job that was to start because this one moved, if it still waits for that."""
    other = state.jobs.get(move.for_job or 0)
    if other is None or not other.claim:
        return None
    told = any((each.job, each.attempt) == (job.id, move.attempt) for each in other.claim_from)
    return other if told else None


def _usable(state: State, placer: Placer, job: Job, move: Move, now: float) -> bool:
    """Could the job run where it was, if nobody else is there?"""
    columns, shape, barred = state.nodes.columns, placer.shape(job.ask), state.barred(job, now)
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


def _free(state: State, favoured: Job | None, allocations: tuple[Allocation, ...]) -> bool:
    """Has nobody got any of this, but for the one who was favoured?"""
    nodes = state.nodes
    if favoured is not None:
        nodes = nodes.copied()
        for claim in favoured.claim:
            nodes.unclaim(favoured.id, claim.node)
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
