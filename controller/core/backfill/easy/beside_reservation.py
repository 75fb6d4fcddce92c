"""Finds nodes for a backfilled job beside the EASY reservation of the first waiting job."""

from __future__ import annotations

import numpy as np

from controller.core.backfill.easy.easy_reservation import EasyReservation
from controller.core.cluster.node_table import Bools, either_mask
from controller.core.placement.placer import Placement, Placer, Shape


def find_beside_reservation(
    placer: Placer, shape: Shape, easy: EasyReservation, barred: Bools | None = None
) -> Placement | None:
    """Return the best placement for a backfilled job that would still run at the reserved start of the first
    waiting job. The placement does not delay this start. Return None if there is no such placement.

    `easy` is the reservation of the first waiting job. The placement uses no node in `barred`.
    """
    if not placer.nodes.may_hold(shape.part):
        return None
    ranking = placer.ranking(shape.part)
    if ranking.count < shape.nodes:
        return None
    barred = easy.kept_from(shape.part, barred)
    domains = placer.required_grouping(shape)
    if domains is not None:
        safe = ranking.in_order(barred)
        if easy.spare < shape.nodes:
            safe = [row for row in safe if not easy.blocks(placer, shape.part, row)]
        together = domains.choose(np.array(sorted(safe), dtype=np.intp), ranking.scores, shape.nodes)
        return placer.allocate_rows(shape, together) if together else None
    if easy.spare >= shape.nodes:
        found = placer.best_rows(shape, shape.nodes, barred)
        return placer.allocate_rows(shape, found) if len(found) == shape.nodes else None
    chosen: list[int] = []
    blocked, spare = easy.blocked_by(placer, shape.part, ranking.rows), easy.spare
    if ranking.count - len(blocked) + spare < shape.nodes:
        return None  # Return before `in_order` is called, because it sorts all nodes and is slow.
    if placer.nearness_of(shape) is not None:
        # Prefer nodes that are near each other and that the first waiting job does not need. If there are too
        # few such nodes, ignore nearness, because a job must not wait for near nodes.
        unneeded = ~ranking.fits
        unneeded[list(blocked)] = True
        found = placer.best_rows(shape, shape.nodes, either_mask(barred, unneeded))
        if len(found) == shape.nodes:
            return placer.allocate_rows(shape, found)
    for row in ranking.in_order(barred):
        if row in blocked:
            if not spare:
                continue
            spare -= 1
        chosen.append(row)
        if len(chosen) == shape.nodes:
            return placer.allocate_rows(shape, sorted(chosen))
    return None
