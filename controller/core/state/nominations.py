"""Finds the jobs that leave a node for a nominated job, from the nominations alone, as after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.cluster.nodes import Node

if TYPE_CHECKING:
    from controller.core.state.state import State


def departing_jobs(state: State, node: Node, without: int = 0) -> dict[int, int]:
    """The victims on this node, each with the nominated job that gets its allocation.

    The nomination of the job `without` is ignored. If several nominations name one victim:
    1. A nomination that needs only this node of the victim is first, because it was made first.
    2. Then nominations of whole victims, by job id.
    3. Jobs that are being moved are last, because they leave for any job that gets their allocation.
    """
    named = [
        (bool(claimant.running), not victim.nodes, claimant.id, victim.job)
        for claimant in [state.jobs[each] for each in node.claims if each != without]
        for victim in claimant.claim_from
        if (not victim.nodes or node.name in victim.nodes)
        and victim.job in node.held
        and state.jobs[victim.job].attempt == victim.attempt
    ]
    found: dict[int, int] = {}
    for _, _, claimant, victim in sorted(named):
        found.setdefault(victim, claimant)
    return found
