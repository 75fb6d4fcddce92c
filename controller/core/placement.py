"""Where a class of jobs can go now: filters and scores per node, kept up to date row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.core.columns import ALL, Bools, Columns, Floats, Rows
from controller.core.events import Allocation
from controller.core.gpus import Choice, choose_gpus, quality_of
from controller.core.nodes import Nodes
from controller.core.plugin import Pipeline
from controller.core.requests import Ask, Part

NO = -np.inf
CLASSES_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Place:
    """A whole placement: one allocation per node, all or nothing."""

    allocations: tuple[Allocation, ...]
    quality: int


@dataclass(frozen=True, slots=True)
class Shape:
    """An ask brought to this cluster: so many nodes, this part on each."""

    part: Part
    nodes: int


class Ranking:
    """Scores of all nodes for one part. After a change only the rows that changed are looked at again."""

    __slots__ = ("_cursor", "_layout", "part", "scores")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.scores: Floats = np.empty(0)
        self._layout = -1
        self._cursor = 0

    def refresh(self, nodes: Nodes, pipeline: Pipeline) -> None:
        """Bring the scores up to the nodes as they are."""
        log = nodes.log
        if self._layout != nodes.layout or len(log) - self._cursor > len(nodes) // 2 + 1:
            self.scores = scores(self.part, nodes.columns, ALL, pipeline)
        elif self._cursor < len(log):
            rows = np.array(sorted(set(log[self._cursor :])), dtype=np.intp)
            self.scores[rows] = scores(self.part, nodes.columns, rows, pipeline)
        self._layout, self._cursor = nodes.layout, len(log)

    def best(self, count: int) -> list[int]:
        """The best rows, fewer if fewer fit; among equals the first name."""
        if not len(self.scores):
            return []
        if count == 1:
            row = int(self.scores.argmax())
            return [row] if self.scores[row] != NO else []
        return sorted(self.in_order()[:count])

    def in_order(self) -> list[int]:
        """All rows that fit, best first."""
        rows: list[int] = np.argsort(-self.scores, kind="stable").tolist()
        fitting = int(np.count_nonzero(self.scores != NO))
        return rows[:fitting]


def kept(part: Part, columns: Columns, rows: Rows, pipeline: Pipeline) -> Bools:
    """Rows that every filter keeps."""
    mask = pipeline.filters[0].keep(part, columns, rows)
    for each in pipeline.filters[1:]:
        mask = mask & each.keep(part, columns, rows)
    return mask


def scores(part: Part, columns: Columns, rows: Rows, pipeline: Pipeline) -> Floats:
    """Weighted scores, minus infinity where a filter said no."""
    mask = kept(part, columns, rows, pipeline)
    total: Floats = np.zeros(len(mask))
    for each in pipeline.scorers:
        total += each.weight * each.scorer.score(part, columns, rows)
    total[~mask] = NO
    return total


class Placer:
    """Finds places. Remembers only what can be worked out again from the nodes."""

    def __init__(self, nodes: Nodes, pipeline: Pipeline) -> None:
        self.nodes = nodes
        self.pipeline = pipeline
        self._rankings: dict[Part, Ranking] = {}
        self._shapes: dict[Ask, tuple[int, Shape | None]] = {}

    def ranking(self, part: Part) -> Ranking:
        """The up-to-date ranking of a part."""
        ranking = self._rankings.get(part)
        if ranking is None:
            if len(self._rankings) >= CLASSES_KEPT:
                self._rankings.clear()
            ranking = self._rankings[part] = Ranking(part)
        ranking.refresh(self.nodes, self.pipeline)
        return ranking

    def shape(self, ask: Ask) -> Shape | None:
        """The fewest nodes that could hold the ask if all were idle; None: this cluster never can."""
        known = self._shapes.get(ask)
        if known is None or known[0] != self.nodes.layout:
            if len(self._shapes) >= CLASSES_KEPT:
                self._shapes.clear()
            known = self._shapes[ask] = (self.nodes.layout, self._find_shape(ask))
        return known[1]

    def _find_shape(self, ask: Ask) -> Shape | None:
        idle = self.nodes.idle
        counts = range(1, min(ask.part.gpus, len(self.nodes)) + 1) if ask.nodes is None else (ask.nodes,)
        for count in counts:
            part = ask.split(count)
            if part is None or not idle.height:
                continue
            if int(np.count_nonzero(kept(part, idle, ALL, self.pipeline))) >= count:
                return Shape(part, count)
        return None

    def possible(self, part: Part) -> Bools:
        """Nodes that take work now and could hold the part if they were empty."""
        return kept(part, self.nodes.idle, ALL, self.pipeline) & self.nodes.columns.open

    def find(self, ask: Ask) -> Place | None:
        """A place for the ask now, or None."""
        shape = self.shape(ask)
        if shape is None:
            return None
        rows = self.ranking(shape.part).best(shape.nodes)
        return self.settle(shape, rows) if len(rows) == shape.nodes else None

    def allocate(self, part: Part, row: int) -> tuple[Allocation, Choice]:
        """What the part gets on the node in this row."""
        node = self.nodes.rows[row]
        choice = choose_gpus(node, self.nodes.columns, part)
        return Allocation(node.name, part.cpu_milli, part.memory_mib, choice.gpus, choice.numa), choice

    def settle(self, shape: Shape, rows: list[int]) -> Place:
        """The whole placement on these rows."""
        chosen = [self.allocate(shape.part, row) for row in rows]
        return Place(
            tuple(allocation for allocation, _ in chosen), quality_of([choice for _, choice in chosen])
        )
