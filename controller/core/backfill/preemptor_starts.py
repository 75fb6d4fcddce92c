"""Preemption in a cycle: starts jobs whose victims have ended, and preempts scavengers for waiting jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.core.backfill.start_rules.limited_starts import start_limit
from controller.core.lifecycle.move_rollback import undo_move
from controller.core.model.events.nominations import PreemptionDropped, PreemptionPlanned
from controller.core.model.job import Job
from controller.core.placement.placer import Placement
from controller.core.queue.queue import Lane
from wire.names import WHOLE_GPU

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle
    from controller.core.backfill.cycle_events import Apply

MOST_JOBS = 16
"""In one cycle, `preempt_scavengers` searches for victims for at most this many waiting jobs."""


def start_preemptors(cycle: Cycle, now: float, apply: Apply) -> None:
    """Start the nominated jobs of one scheduler profile whose preemption victims have ended.

    1. Take the nominated jobs whose nodes have changed since the last cycle.
    2. Withdraw the nomination of a job that may no longer use the nodes, for example because of a quota. If
       the job was being moved to these nodes, undo the move.
    3. Start each of these jobs whose victims have all ended.
    """
    state, preemption = cycle.state, cycle.preemption
    touched = _take_touched_claimants(cycle)
    for job in touched:
        if not job.claim:
            # Skip this job, because it lost its nomination earlier in this loop: the move of another job was
            # undone, and that job got its old nodes back.
            continue
        over = None if job.unended else cycle.limits.over(job, now)
        useless = str(over) if over else preemption.claim_problem(job) or cycle.search.blocked_claim(job, now)
        if useless and job.move is not None:
            for event in undo_move(state, cycle.placer, job, useless, now):
                apply(event)
            if job.claim:
                # The undone move has nominated the job for its old nodes. These nodes may be free already, so
                # check the job again at the end of this loop.
                touched.append(job)
        elif useless:
            apply(PreemptionDropped(job.id, now, useless))
        elif preemption.claim_ready(job):
            cycle.start(job.id, Placement(job.claim, job.claim_quality), now, apply)


def _take_touched_claimants(cycle: Cycle) -> list[Job]:
    """Return the nominated jobs of this scheduler profile whose nominated nodes have changed since the last
    call. If operators have made reservations, return all nominated jobs of the profile.
    """
    state = cycle.state
    stirred, claims = state.nodes.claims_to_check, state.claims
    if state.reservations:
        # Check all nominations, because no event reports that an operator's reservation will soon bar nodes.
        stirred.update(claims)
    found = [state.jobs[job] for job in sorted(stirred) if job in claims]
    mine = [job for job in found if state.queue_of(job) is cycle.queue]
    stirred.difference_update(job.id for job in mine)
    return mine


def preempt_scavengers(cycle: Cycle, lanes: Iterable[Lane], now: float, apply: Apply) -> None:
    """Preempt scavengers (jobs of the lowest priority) for waiting jobs that do not fit, including jobs
    behind the first waiting job.

    1. Take the first job of each lane (list of jobs with one request), in queue order. Skip scavengers, jobs
       over a limit, and jobs that would not fit even if the scavengers left their nodes.
    2. If the start of the job delays no backfill reservation, preempt scavengers, and keep their nodes for
       the job (nomination).

    All other preemption is only for the first waiting job. Without this function, later jobs would therefore
    wait for GPUs that only scavengers use. Cost: O(running scavengers) if no running scavenger may be
    preempted. Otherwise O(lanes), and a search for victims for at most MOST_JOBS jobs.
    """
    scavengers, state, queue = cycle.scavengers, cycle.state, cycle.queue
    held = {} if scavengers is None else scavengers.gpus_by_row(now)
    if scavengers is None or not held:
        return
    heads = [(cycle.position(entry), lane) for lane in set(lanes) if (entry := lane.head()) is not None]
    tried = 0
    for (_, number), lane in sorted(heads, key=lambda each: each[0]):
        job, shape = state.jobs[number], cycle.placer.shape(lane.ask)
        if shape is None or number not in queue or scavengers.yields(job):
            continue
        free = (state.nodes.columns.gpu_free == WHOLE_GPU).sum(axis=1)
        rows = sum(gpus + int(free[row]) >= max(shape.part.gpus, 1) for row, gpus in held.items())
        if not rows or rows + cycle.placer.max_nodes(shape.part) < shape.nodes:
            continue
        if start_limit(cycle, job, now) is not None:
            continue
        reserved = cycle.search.reserved_for_others(job, now)
        plan = cycle.preemption.plan(job, now, reserved, scavengers_only=True)
        if plan is not None:
            apply(plan)
            held = scavengers.gpus_by_row(now)
        tried += 1
        if not held or tried == MOST_JOBS:
            return


def plan_preemption(cycle: Cycle, job: Job, now: float) -> PreemptionPlanned | None:
    """Return a preemption that lets the job start after its victims have ended; None if there is none."""
    if not cycle.preemption.active or cycle.state.licences.insufficient(job.ask.licences):
        # Preemption cannot help a job that lacks licences, because the search for victims does not consider
        # licences.
        return None
    return cycle.preemption.plan(job, now, cycle.search.reserved_for_others(job, now))
