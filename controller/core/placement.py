"""Where a class of jobs can go now: filters and scores per node, kept up to date row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from controller.core.columns import ALL, Bools, Columns, Floats, Rows
from controller.core.domains import Domains
from controller.core.events import Allocation
from controller.core.gpus import NO_GPUS, Choice, choose_gpus, quality_of
from controller.core.heed import unheeded
from controller.core.nodes import Node, Nodes
from controller.core.plugin import Filter, Pipeline, Weighted
from controller.core.requests import Ask, Part
from controller.core.room import Room, room_of
from wire.gpuwish import Topology

NO = -np.inf
CLASSES_KEPT = 4_096
EVERYTHING: Mapping[int, Room] = {}


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
    topology: Topology | None = None


class Ranking:
    """Which nodes fit one part, and how well. After a change only the rows that changed are looked at again.

    Fits and scores are brought up to date separately: where nothing fits, or only as many nodes as are
    needed, nobody asks for scores.
    """

    __slots__ = (
        "_asked",
        "_counted",
        "_counted_gains",
        "_edition",
        "_filters",
        "_fits",
        "_fits_at",
        "_lasting",
        "_met",
        "_nodes",
        "_part",
        "_scorers",
        "_scores",
        "_scores_at",
        "_social",
        "_static",
        "_wide",
    )

    def __init__(self, part: Part, nodes: Nodes, pipeline: Pipeline) -> None:
        self._part = part
        self._social = part.social
        self._nodes = nodes
        filters = concerned(part, pipeline)
        self._filters = [each for each in filters if not is_static(each)]
        self._static = [each for each in filters if is_static(each)]
        self._scorers = pipeline.scorers
        self._wide = any(getattr(each.scorer, "wide", False) for each in pipeline.scorers)
        self._asked: tuple[int, list[Weighted]] = (-1, [])
        self._lasting: tuple[int, Bools | None, Bools | None] = (-1, None, None)
        self._fits: Bools = np.empty(0, dtype=np.bool_)
        self._scores: Floats = np.empty(0)
        self._fits_at = self._scores_at = (-1, 0)
        self._edition = -1
        self._met = 0
        self._counted = ((-1, 0), -1, 0)
        self._counted_gains = -1

    def _stale(self, seen: tuple[int, int]) -> Rows | None:
        """Rows that changed since (layout, changes); None if there are none."""
        nodes = self._nodes
        layout, changes = seen
        if layout == nodes.layout and changes == nodes.changes:
            return None
        rows = nodes.changed_since(changes) if layout == nodes.layout else None
        if rows is None or len(rows) > len(nodes) // 2 + 1:
            return ALL
        return np.array(rows if len(rows) == 1 else sorted(set(rows)), dtype=np.intp)

    def _by_nature(self) -> Bools | None:
        """What the static filters keep, asked once a layout; None if there are none."""
        nodes = self._nodes
        columns = nodes.columns  # laid out first: that may raise the layout
        if self._lasting[0] != nodes.layout:
            mask = kept(self._part, columns, ALL, self._static) if self._static else None
            idle = kept(self._part, nodes.idle, ALL, self._filters)
            self._lasting = nodes.layout, mask, idle if mask is None else idle & mask
        return self._lasting[1]

    @property
    def possible(self) -> Bools:
        """True for every node that could hold the part if nobody were on it."""
        self._by_nature()
        found = self._lasting[2]
        assert found is not None
        return found

    @property
    def fits(self) -> Bools:
        """True for every node that can hold the part now."""
        rows = self._stale(self._fits_at)
        nodes = self._nodes
        if self._met != nodes.company.changes:
            # Who comes to one node changes what is right for all that lie with it.
            rows = ALL if self._part.social else rows
            self._met = nodes.company.changes
            self._edition = -1 if self._part.social else self._edition
        if rows is not None:
            mask = kept(self._part, nodes.columns, rows, self._filters)
            if self._static:
                lasting = self._by_nature()
                assert lasting is not None
                mask = mask & lasting[rows]
            if isinstance(rows, slice):
                self._fits = mask
            else:
                self._fits[rows] = mask
            self._fits_at = (nodes.layout, nodes.changes)
        return self._fits

    @property
    def count(self) -> int:
        """How many nodes can hold the part now."""
        fits = self.fits
        if self._counted[:2] != (self._fits_at, self._met):
            self._counted = self._fits_at, self._met, int(np.count_nonzero(fits))
            self._counted_gains = self._nodes.gains
        return self._counted[2]

    @property
    def rows(self) -> list[int]:
        """The rows that fit, in the order of names."""
        rows: list[int] = self.fits.nonzero()[0].tolist()
        return rows

    @property
    def at_most(self) -> int:
        """No more nodes than this can hold the part now: room only shrinks until `gains` grows.

        Nothing is known of parts that want others near them: these come without a gain.
        """
        if self._counted_gains == self._nodes.gains and not self._social:
            return self._counted[2]
        return len(self._nodes)

    @property
    def scores(self) -> Floats:
        """Weighted scores, minus infinity where a filter said no."""
        fits = self.fits
        rows = self._stale(self._scores_at) if self._edition == self._nodes.edition else ALL
        if rows is not None and self._wide:
            rows = ALL
        if rows is not None:
            nodes = self._nodes
            if isinstance(rows, slice):
                self._scores = np.full(len(fits), NO)
                fitting = np.flatnonzero(fits)
            else:
                self._scores[rows] = NO
                fitting = rows[fits[rows]]
            if len(fitting):
                total: Floats = np.zeros(len(fitting))
                for each in self._with_a_say():
                    total += each.weight * each.scorer.score(self._part, nodes.columns, fitting)
                self._scores[fitting] = total
            self._scores_at = (nodes.layout, nodes.changes)
            self._edition = nodes.edition
        return self._scores

    def _with_a_say(self) -> list[Weighted]:
        """The scorers to which not all nodes are alike; that goes by what nodes are by nature."""
        layout, found = self._asked
        if layout != self._nodes.layout:
            found = asked(self._part, self._nodes.columns, self._scorers)
            self._asked = self._nodes.layout, found
        return found

    def together(self, count: int, domains: Domains, barred: Bools | None = None) -> list[int]:
        """The best rows that lie as asked and are not barred, by name; none if there are none."""
        if self.count < count:
            return []
        fits = self.fits if barred is None else self.fits & ~barred
        return domains.choose(np.flatnonzero(fits), self.scores, count)

    def best(self, count: int, barred: Bools | None = None) -> list[int]:
        """The best rows in the order of names, fewer if fewer fit; among equals the first name."""
        if barred is not None:
            return sorted(self.in_order(barred)[:count])
        if self.count <= count:
            return self.rows
        if not self._with_a_say():
            return self.rows[:count]
        if count == 1:
            return [int(self.scores.argmax())]
        return sorted(self.in_order()[:count])

    def in_order(self, barred: Bools | None = None) -> list[int]:
        """All rows that fit and are not barred, best first."""
        if self.count <= 1 or not self._with_a_say():
            rows = self.rows
        else:
            rows = np.argsort(-self.scores, kind="stable").tolist()[: self.count]
        return rows if barred is None else [row for row in rows if not barred[row]]


def kept(part: Part, columns: Columns, rows: Rows, filters: Sequence[Filter]) -> Bools:
    """Rows that every one of these filters keeps; there is at least one."""
    mask = filters[0].keep(part, columns, rows)
    for each in filters[1:]:
        mask = mask & each.keep(part, columns, rows)
    return mask


def concerned(part: Part, pipeline: Pipeline) -> list[Filter]:
    """The filters that have a say about the part."""
    return [each for each in pipeline.filters if each.concerns(part)]


def is_static(plugin: Filter) -> bool:
    """Does the filter look only at what nodes have by nature?"""
    return bool(getattr(plugin, "static", False))


def asked(part: Part, columns: Columns, scorers: Sequence[Weighted]) -> list[Weighted]:
    """The scorers to which not all nodes are alike."""
    found = []
    for each in scorers:
        concerns = getattr(each.scorer, "concerns", None)
        if concerns is None or concerns(part, columns):
            found.append(each)
    return found


@lru_cache(maxsize=65_536)
def _bare(node: str, cpu_milli: int, memory_mib: int, scratch_mib: int) -> Allocation:
    """An allocation without GPUs: gangs take the same from the same nodes again and again."""
    return Allocation(node, cpu_milli, memory_mib, scratch_mib=scratch_mib)


class Placer:
    """Finds places. Remembers only what can be worked out again from the nodes."""

    def __init__(self, nodes: Nodes, pipeline: Pipeline) -> None:
        self.nodes = nodes
        self.pipeline = pipeline
        self._rankings: dict[Part, Ranking] = {}
        self._shapes: dict[Ask, tuple[int, Shape | None]] = {}
        self._domains: dict[Topology, tuple[int, Domains]] = {}

    def forget(self) -> None:
        """Ask filters and scorers anew: for scorers that do not answer the same twice."""
        self._rankings.clear()

    def ranking(self, part: Part) -> Ranking:
        """The ranking of a part, brought up to date as it is read."""
        ranking = self._rankings.get(part)
        if ranking is None:
            if len(self._rankings) >= CLASSES_KEPT:
                self._rankings.clear()
            ranking = self._rankings[part] = Ranking(part, self.nodes, self.pipeline)
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
        """Taints count, for work goes elsewhere; without an elsewhere, they may be taken away again."""
        if not len(self.nodes) or self.unheeded(ask.part):
            return None
        found = self._fewest(ask, lambda part: self.ranking(part).possible)
        if found is None and any(self.nodes.columns.taints):
            bare = replace(self.nodes.idle, taints=[()] * len(self.nodes))
            return self._fewest(ask, lambda part: kept(part, bare, ALL, concerned(part, self.pipeline)))
        return found

    def unheeded(self, part: Part) -> str | None:
        """A wish of the part that no filter looks at: it is placed nowhere rather than anywhere."""
        return unheeded(self.pipeline.filters, part)

    def _fewest(self, ask: Ask, holds: Callable[[Part], Bools]) -> Shape | None:
        counts: Sequence[int]
        if ask.nodes is None:
            counts = range(1, min(ask.part.gpus, len(self.nodes)) + 1)
        else:
            counts = range(ask.nodes, (ask.least or ask.nodes) - 1, -1)  # as many as there can be
        for count in counts:
            part = ask.split(count)
            if part is None:
                continue
            mask = holds(part)
            if int(np.count_nonzero(mask)) < count:
                continue
            shape = Shape(part, count, ask.topology if count > 1 else None)
            domains = self.demanded(shape)
            if domains is None or domains.spare(mask.nonzero()[0], count) >= 0:
                return shape
        return None

    def domains(self, topology: Topology) -> Domains:
        """Where the nodes lie by that label."""
        known = self._domains.get(topology)
        if known is None or known[0] != self.nodes.layout:
            columns = self.nodes.columns
            known = self._domains[topology] = self.nodes.layout, Domains(topology, columns.labels)
        return known[1]

    def demanded(self, shape: Shape) -> Domains | None:
        """How the nodes must lie; None if that does not matter, or is only a preference."""
        return None if shape.topology is None or shape.topology.prefer else self.domains(shape.topology)

    def possible(self, part: Part) -> Bools:
        """Nodes that take work now and could hold the part if they were empty."""
        return self.ranking(part).possible & self.nodes.columns.open

    def find(self, ask: Ask, barred: Bools | None = None) -> Place | None:
        """A place for the ask now on nodes that are not barred, or None."""
        shape = self.shape(ask)
        if shape is None or not self.nodes.most.may_hold(shape.part):
            return None
        ranking, rows = self.ranking(shape.part), []
        if ranking.count < shape.nodes:
            return None
        if shape.topology is not None:
            rows = ranking.together(shape.nodes, self.domains(shape.topology), barred)
        if not rows and self.demanded(shape) is None:
            rows = ranking.best(shape.nodes, barred)
        return self.settle(shape, rows) if len(rows) == shape.nodes else None

    def fits(self, ask: Ask) -> bool:
        """Is there room for the ask now, on whatever nodes?"""
        shape = self.shape(ask)
        if shape is None:
            return False
        ranking, domains = self.ranking(shape.part), self.demanded(shape)
        if domains is None:
            return ranking.count >= shape.nodes
        return domains.spare(np.flatnonzero(ranking.fits), shape.nodes) >= 0

    def at_most(self, part: Part) -> int:
        """No more nodes than this can hold the part now, by what other classes of it have found out."""
        ranking = self._rankings.get(part)
        return len(self.nodes) if ranking is None else ranking.at_most

    def find_fewer(self, ask: Ask, barred: Bools | None = None, most: int | None = None) -> Place | None:
        """A place on as many nodes as there are now, up to `most`, if those are as many as the ask needs."""
        shape = self.shape(ask)
        if shape is None or ask.least is None or self.demanded(shape) is not None:
            return None
        rows = self.ranking(shape.part).best(shape.nodes if most is None else min(shape.nodes, most), barred)
        return self.settle(replace(shape, nodes=len(rows)), rows) if len(rows) >= ask.least else None

    def takes(self, ask: Ask, place: Place, barred: Bools | None = None) -> bool:
        """Do the filters keep every node of this place now, is none barred, and are its very GPUs free?"""
        shape = self.shape(ask)
        rows = [self.nodes.by_name[allocation.node].row for allocation in place.allocations]
        if shape is None or (barred is not None and barred[rows].any()):
            return False
        return bool(self.ranking(shape.part).fits[rows].all()) and all(map(self._free, place.allocations))

    def _free(self, allocation: Allocation) -> bool:
        """Has nobody got the GPUs of this? Filters only count them."""
        node, free = self.nodes.by_name[allocation.node], self.nodes.columns.gpu_free
        slots = [(node.slots.get(hold.uuid), hold.milli) for hold in allocation.gpus]
        return all(slot is not None and free[node.row, slot] >= milli for slot, milli in slots)

    def allocate(self, part: Part, node: Node, room: Room | None = None) -> tuple[Allocation, Choice]:
        """What the part gets on a node, out of the room it has now or out of the one given."""
        choice = NO_GPUS
        if part.wants_gpus:
            columns = self.nodes.columns
            choice = choose_gpus(
                node,
                room or room_of(self.nodes, node.row),
                part,
                columns,
                partial(self.pipeline.picker.pick, part, columns, node.row),
            )
        if choice is NO_GPUS:
            return _bare(node.name, part.cpu_milli, part.memory_mib, part.scratch_mib), choice
        gpus, numa = choice.gpus, choice.numa
        return Allocation(node.name, part.cpu_milli, part.memory_mib, gpus, numa, part.scratch_mib), choice

    def settle(self, shape: Shape, rows: list[int], rooms: Mapping[int, Room] = EVERYTHING) -> Place:
        """The whole placement on these rows; by row the room to take it from, where not all there is."""
        nodes, part = self.nodes.rows, shape.part
        if not part.wants_gpus:  # nothing to choose
            amounts = part.cpu_milli, part.memory_mib, part.scratch_mib
            bare = tuple(_bare(nodes[row].name, *amounts) for row in rows)
            return Place(bare, quality_of([NO_GPUS] * len(rows)))
        chosen = [self.allocate(part, nodes[row], rooms.get(row)) for row in rows]
        return Place(
            tuple(allocation for allocation, _ in chosen), quality_of([choice for _, choice in chosen])
        )
