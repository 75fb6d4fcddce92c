"""Chooses the waiting jobs that get a backfill reservation on nodes that several scheduler profiles share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.backfill.start_rules.limited_starts import start_limit
from controller.core.cluster.node_table import RowSet, rows_where
from controller.core.framework.interfaces import Reserves

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle


def jobs_to_reserve(cycle: Cycle, now: float) -> dict[int, RowSet | None]:
    """Return the waiting jobs of the scheduler profile that get a backfill reservation in this cycle, in
    queue order, each with the only nodes on which it may get the reservation. None means all nodes.

    Algorithm
    1. The first waiting job gets a reservation on any nodes. A job gets no reservation if no time is known at
       which it can start. The next waiting job then takes its place. Example: the job needs drained nodes, or
       all GPUs of a node on which a service runs.
    2. On the nodes that this job can never use, the next waiting job in queue order gets a reservation. Leave
       out jobs that a quota or another limit keeps from starting. Also leave out scavengers
       (preemption/scavengers.py).
    3. Repeat step 2 with the nodes that none of these jobs can use. Stop when no nodes or no jobs are left.

    Invariant: no further reservation (step 2) is on a node that a job before it in the result can use. Cost:
    O(nodes) if the first waiting job can use every node, otherwise O(lanes x log lanes) and one test of
    limits for each further reservation.

    Example: the first waiting job is a gang that needs H100 GPUs. The next job needs a whole A100 node.
    Without a further reservation, 1-GPU jobs take each A100 GPU that becomes free, and the next job never
    starts. With a further reservation, one A100 node is emptied for the next job.
    """
    head = cycle.head
    if head is None or cycle.backfill.reserves is Reserves.NO_JOB:
        return {}
    placer, queue, jobs = cycle.placer, cycle.queue, cycle.state.jobs
    scavengers = cycle.scavengers
    if scavengers is not None and scavengers.yields(jobs[head[1]]):
        # The first waiting job is a scavenger. Scavengers come last, so all waiting jobs are scavengers.
        return {}
    shared, left = cycle.shared, rows_where(placer.nodes.columns.open)
    found: dict[int, RowSet | None] = {}
    if shared is None or shared.can_reserve(jobs[head[1]], None, now):
        found[head[1]] = None
        shape = placer.shape(jobs[head[1]].ask)
        left &= 0 if shape is None else ~rows_where(placer.possible_nodes(shape.part))
    if not left:
        return found
    heads = [(cycle.position(entry), lane) for lane in queue if (entry := lane.head()) is not None]
    for (_, number), lane in sorted(heads, key=lambda each: each[0]):
        shape = placer.shape(lane.ask)
        if shape is None or number == head[1]:
            continue
        suited = rows_where(placer.possible_nodes(shape.part))
        if (suited & left).bit_count() < (lane.ask.least or shape.nodes):
            continue
        job = jobs[number]
        if scavengers is not None and scavengers.yields(job):
            break
        rows = left if found else None
        if start_limit(cycle, job, now) is not None:
            continue
        if shared is not None and not shared.can_reserve(job, rows, now):
            continue
        found[number] = rows
        left &= ~suited
        if not left:
            break
    return found


def reserved_behind(cycle: Cycle, number: int) -> list[int]:
    """Return the ids of the jobs with a backfill reservation that are behind job `number` in the queue. A
    start of job `number` may delay these reservations.
    """
    queue, reserved = cycle.queue, () if cycle.shared is None else cycle.shared.reservations.by_job
    entries = [queue.entry(each) for each in reserved if each in queue]
    own = cycle.position(queue.entry(number))
    return [entry[1] for entry in entries if cycle.position(entry) > own]
