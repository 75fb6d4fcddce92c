"""Who leaves a node for whose sake, worked out from the claims: what a restart knows, and what passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.nodes import Node

if TYPE_CHECKING:
    from controller.core.state import State


def leavers(state: State, node: Node, without: int = 0) -> dict[int, int]:
    """Jobs that are being ended, by number, each with the job that gets its place on this node.

    As if nothing were kept for the job that it is to be `without`.
    More than one may name the same job. Who was told to leave just this node comes first: it was planned
    before all of the job had to end. Those who are moved come last: they leave for whoever gets their place.
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
