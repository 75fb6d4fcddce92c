"""Shows the points that the scorers give to nodes for a waiting job, and how near the nodes of a gang are to
each other in the network.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from controller.core.cluster.node_table import Ints
from controller.core.model.job import Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer
from wire.api.reasons import NodeScore, Points
from wire.text import printable

NAMED = 5
"""The most nodes whose scores are shown."""


def node_scores(placer: Placer, job: Job) -> tuple[NodeScore, ...]:
    """Return the best nodes for a waiting job with the points of each scorer, the best node first.

    Only nodes on which the request fits now are considered. If the request fits on no node now, the nodes
    that could hold the request without running jobs are considered. The scores always use the resources that
    are free now. Scorers that rate all nodes equally for this job are left out.
    """
    shape = placer.shape(job.ask)
    part = job.ask.part if shape is None else shape.part
    ranking = placer.ranking(part)
    fits = ranking.count > 0
    rows = np.flatnonzero(ranking.fits if fits else placer.possible_nodes(part))
    if not len(rows):
        return ()
    return best_scores(placer, part, rows, fits=fits)


def best_scores(
    placer: Placer, part: PerNodeRequest, rows: Ints, *, fits: bool, chosen: frozenset[int] = frozenset()
) -> tuple[NodeScore, ...]:
    """Return the nodes with the row numbers `chosen`, and the NAMED best other nodes of `rows`, with the
    points of each scorer. The best node is first. Scorers that rate all nodes equally are left out.
    """
    ranking, columns = placer.ranking(part), placer.nodes.columns
    parts = [
        (each.scorer.name, each.weight, each.scorer.score(part, columns, rows))
        for each in ranking.active_scorers
    ]
    if not parts:
        return ()
    total = sum(weight * scores for _, weight, scores in parts)
    found: list[NodeScore] = []
    others = 0
    for at in np.argsort(-np.asarray(total), kind="stable").tolist():
        row = int(rows[at])
        others += row not in chosen
        if row in chosen or others <= NAMED:
            points = tuple(
                Points(name, float(scores[at]), weight, weight * float(scores[at]))
                for name, weight, scores in parts
            )
            found.append(NodeScore(placer.nodes.rows[row].name, points, fits, row in chosen))
    return tuple(found)


def nearness_note(placer: Placer, job: Job) -> Iterator[str]:
    """Yield a text about the nodes that a waiting gang would get now: the names of the nodes, and the switch
    that is above all of them. Yield nothing if the gang does not fit, or if scheduler.toml has no table
    [topology].
    """
    shape = placer.shape(job.ask)
    near = None if shape is None else placer.nearness_of(shape)
    if shape is None or near is None:
        return
    rows = placer.best_rows(shape, shape.nodes)
    if len(rows) == shape.nodes:
        names = ", ".join(placer.nodes.rows[row].name for row in rows)
        score = near.nearness(rows, placer.ranking(shape.part).rows)
        where, weight = near.description(rows), near.topology.weight
        points = f"{weight * score:.1f} = {score:.2f} × {weight:g}"
        yield f"nodes near each other that fit now: {names}, {printable(where)}: {points} points (topology)"


def common_switch_text(placer: Placer, job: Job) -> str:
    """Return the end of a sentence that names the switch above all nodes of a running gang. Return an empty
    text for a job on one node, or if scheduler.toml has no table [topology].
    """
    near, nodes = placer.network, [member.allocation.node for member in job.running]
    if near is None or len(nodes) < 2:
        return ""
    return f", {printable(near.description(placer.nodes.by_name[node].row for node in nodes))}"
