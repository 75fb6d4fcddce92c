"""Starts jobs whose preemption victims have ended, on the nodes that were kept for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.lifecycle.move_rollback import undo_move
from controller.core.model.events.nominations import PreemptionDropped
from controller.core.model.job import Job
from controller.core.placement.placer import Placement

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Apply, Cycle


def start_preemptors(cycle: Cycle, now: float, apply: Apply) -> None:
    """Start the nominated jobs of one profile whose preemption victims have ended.

    1. Take the nominated jobs whose nodes have changed since the last pass.
    2. Withdraw the nomination of a job that may no longer use the nodes, for example because of a quota. If
       the job was being moved to these nodes, undo the move.
    3. Start a job if all its victims have left.
    """
    state, preemption = cycle.state, cycle.preemption
    touched = _take_touched_claimants(cycle)
    for job in touched:
        if not job.claim:
            # This job has lost its nomination earlier in this loop, because another job, whose move was
            # undone, got its old nodes back.
            continue
        over = None if job.unended else cycle.limits.over(job, now)
        useless = str(over) if over else preemption.claim_problem(job) or cycle.search.blocked_claim(job, now)
        if useless and job.move is not None:
            for event in undo_move(state, cycle.placer, job, useless, now):
                apply(event)
            if job.claim:
                # The undone move has nominated the job to its old nodes. Check it again at the end of this
                # loop, because these nodes may be free already.
                touched.append(job)
        elif useless:
            apply(PreemptionDropped(job.id, now, useless))
        elif preemption.claim_ready(job):
            cycle.start(job.id, Placement(job.claim, job.claim_quality), now, apply)


def _take_touched_claimants(cycle: Cycle) -> list[Job]:
    """Return the nominated jobs of this profile for which a node that is kept for them has changed since the
    last call.
    """
    state = cycle.state
    stirred, claims = state.nodes.claims_to_check, state.claims
    if state.reservations:
        # Check all nominations. An operator's reservation that begins soon bars nodes, and no event
        # reports this.
        stirred.update(claims)
    found = [state.jobs[job] for job in sorted(stirred) if job in claims]
    mine = [job for job in found if state.queue_of(job) is cycle.queue]
    stirred.difference_update(job.id for job in mine)
    return mine
