"""Divides the jobs of a plan among the rows of the chart: one row for each job, or one or more rows for each
node or user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from wire.api.forecasts import CERTAIN, Plan, PlanBlock, PlanEntry
from wire.job.spec import gpus_text

Grouping = Literal["node", "job", "user"]
GROUPINGS: Final[tuple[Grouping, ...]] = ("node", "job", "user")
MOST_LANES: Final = 12
"""A node or user has at most this number of rows when jobs that overlap are drawn below one another."""


@dataclass
class ChartRow:
    """One row of the chart: jobs from left to right, and behind the jobs the reservations and drains.

    `name` is empty in the second and later rows of one node or user. `node` is the node that the row shows;
    empty in charts by job or user.
    """

    name: str
    detail: str = ""
    node: str = ""
    bars: list[PlanEntry] = field(default_factory=list)
    blocks: Sequence[PlanBlock] = ()


def chart_rows(plan: Plan, grouping: Grouping, nodes: Mapping[str, str], *, apart: bool) -> list[ChartRow]:
    """Return the rows of the chart. `nodes` is a dict from node name to the used GPUs of the node, such as
    7/8.

    With `apart`, jobs that overlap in time are drawn in separate rows of the same node or user:

    1. Take the jobs of the node or user in the order of their starts.
    2. Put each job into the first row whose last job has ended before the job starts. If there is no such
       row, begin a new row; after MOST_LANES rows, use the last row.

    Without `apart`, each node or user has one row, in which a job with more GPUs covers the others. In the
    chart by job, each job always has one row.
    """
    if grouping == "job":
        return [
            ChartRow(entry.label, f"{entry.name}  {gpus_text(entry.gpus)}", bars=[entry])
            for entry in plan.entries
        ]
    groups: dict[str, list[PlanEntry]] = defaultdict(list)
    for entry in plan.entries:
        for name in entry.nodes if grouping == "node" else (entry.user,):
            groups[name].append(entry)
    if grouping == "user":
        names = sorted(groups, key=lambda name: (-_gpus(groups[name]), name))
        details = {name: gpus_text(round(_held(groups[name]), 2)) for name in names}
    else:
        names = [*nodes, *sorted(groups.keys() - nodes.keys())]
        details = dict(nodes)
    blocks: dict[str, list[PlanBlock]] = defaultdict(list)
    for block in plan.blocks:
        for name in block.nodes if grouping == "node" else ():
            blocks[name].append(block)
    rows: list[ChartRow] = []
    for name in names:
        lanes = _lanes(groups[name]) if apart else [groups[name]]
        for number, lane in enumerate(lanes or [[]]):
            first = number == 0
            rows.append(
                ChartRow(
                    name if first else "",
                    details.get(name, "") if first else "",
                    name if grouping == "node" else "",
                    lane,
                    blocks[name],
                )
            )
    return rows


def _lanes(entries: Iterable[PlanEntry]) -> list[list[PlanEntry]]:
    lanes: list[list[PlanEntry]] = []
    free_at: list[float] = []
    for entry in sorted(entries, key=lambda entry: (entry.starts_at, -entry.gpus, entry.job)):
        ends = float("inf") if entry.ends_at is None else entry.ends_at
        place = next((place for place, at in enumerate(free_at) if at <= entry.starts_at), len(lanes))
        if place == len(lanes) and len(lanes) < MOST_LANES:
            lanes.append([])
            free_at.append(0.0)
        place = min(place, MOST_LANES - 1)
        lanes[place].append(entry)
        free_at[place] = max(free_at[place], ends)
    return lanes


def _held(entries: Iterable[PlanEntry]) -> float:
    return sum(entry.gpus for entry in entries if entry.certainty == CERTAIN)


def _gpus(entries: Iterable[PlanEntry]) -> float:
    return sum(entry.gpus for entry in entries)
