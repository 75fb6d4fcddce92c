"""Ranks the nodes for one request: which nodes the filters keep, and how the scorers rate them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.core.cluster.node_table import ALL_ROWS, Bools, Floats, NodeTable, Rows
from controller.core.cluster.nodes import Nodes
from controller.core.cluster.topology_domains import TopologyDomains
from controller.core.framework.interfaces import Filter, SchedulingPolicy, WeightedScorer
from controller.core.model.request import PerNodeRequest
from controller.core.placement.one_gpu_model import GpuModelGroups

REJECTED = -np.inf


class NodeRanking:
    """The nodes that fit one request now, and their scores. All jobs of a class share one ranking.

    Algorithm
    1. Ask static filters, which read only labels, taints and hardware, once per layout.
    2. When `fits` is read, ask the other filters about the rows that changed since the last time.
    3. When `scores` is read, ask the scorers about those changed rows that fit. A scorer for which all nodes
       are alike is not asked. Where no node fits, or no more nodes than needed, nothing reads `scores`.

    Invalidation (see Nodes for the versions): `_fits_at` and `_scores_at` are (layout_version, change_count)
    at the last update. Another layout, or changes on more than half of the rows, means all rows. Requests
    with labels or job affinity are computed for all rows whenever a job with labels starts or ends, because a
    job on one node matters to all nodes of its domain. Scores are computed again when `value_version` grows.

    Invariant: `fits` equals the filters asked about all rows at this moment.
    Cost: O(changed rows * filters) for `fits`, and the same with scorers for `scores`.

    Example: of 1,000 nodes 12 changed since the last pass. 12 rows go through the filters, the 3 that fit go
    through the scorers, and the scores of the other 988 stay.
    """

    __slots__ = (
        "_active_cache",
        "_affinity_version",
        "_counted",
        "_counted_room_version",
        "_filters",
        "_fits",
        "_fits_at",
        "_has_affinity",
        "_nodes",
        "_part",
        "_scorers",
        "_scores",
        "_scores_at",
        "_static",
        "_static_cache",
        "_value_version",
        "_wide",
    )

    def __init__(self, part: PerNodeRequest, nodes: Nodes, pipeline: SchedulingPolicy) -> None:
        self._part = part
        self._has_affinity = part.social
        self._nodes = nodes
        filters = filters_for(part, pipeline)
        self._filters = [each for each in filters if not is_static(each)]
        self._static = [each for each in filters if is_static(each)]
        self._scorers = pipeline.scorers
        self._wide = any(getattr(each.scorer, "wide", False) for each in pipeline.scorers)
        self._active_cache: tuple[int, list[WeightedScorer]] = (-1, [])
        self._static_cache: tuple[int, Bools | None, Bools | None] = (-1, None, None)
        self._fits: Bools = np.empty(0, dtype=np.bool_)
        self._scores: Floats = np.empty(0)
        self._fits_at = self._scores_at = (-1, 0)
        self._value_version = -1
        self._affinity_version = 0
        self._counted = ((-1, 0), -1, 0)
        self._counted_room_version = -1

    def _stale(self, seen: tuple[int, int]) -> Rows | None:
        """The rows changed since (layout_version, change_count); None if there are none."""
        nodes = self._nodes
        layout, changes = seen
        if layout == nodes.layout_version and changes == nodes.change_count:
            return None
        rows = nodes.changed_since(changes) if layout == nodes.layout_version else None
        if rows is None or len(rows) > len(nodes) // 2 + 1:
            return ALL_ROWS
        return np.array(rows if len(rows) == 1 else sorted(set(rows)), dtype=np.intp)

    def _static_mask(self) -> Bools | None:
        """The rows that the static filters keep, asked once per layout; None without static filters."""
        nodes = self._nodes
        columns = nodes.columns  # first, because laying out the table may raise the version
        if self._static_cache[0] != nodes.layout_version:
            mask = rows_passing(self._part, columns, ALL_ROWS, self._static) if self._static else None
            idle = rows_possible(self._part, nodes.idle, [*self._filters, *self._static])
            self._static_cache = nodes.layout_version, mask, idle
        return self._static_cache[1]

    @property
    def possible(self) -> Bools:
        """The nodes that could hold the request if no job ran on them."""
        self._static_mask()
        found = self._static_cache[2]
        assert found is not None
        return found

    @property
    def fits(self) -> Bools:
        """The nodes that can hold the request now."""
        rows = self._stale(self._fits_at)
        nodes = self._nodes
        if self._affinity_version != nodes.job_affinity.version:
            # All rows, because a job that starts on one node matters to all nodes of its domain.
            rows = ALL_ROWS if self._part.social else rows
            self._affinity_version = nodes.job_affinity.version
            self._value_version = -1 if self._part.social else self._value_version
        if rows is not None:
            mask = rows_passing(self._part, nodes.columns, rows, self._filters)
            static = self._static_mask()
            if static is not None:
                mask = mask & static[rows]
            if isinstance(rows, slice):
                self._fits = mask
            else:
                self._fits[rows] = mask
            self._fits_at = (nodes.layout_version, nodes.change_count)
        return self._fits

    @property
    def count(self) -> int:
        """How many nodes can hold the request now."""
        fits = self.fits
        if self._counted[:2] != (self._fits_at, self._affinity_version):
            self._counted = self._fits_at, self._affinity_version, int(np.count_nonzero(fits))
            self._counted_room_version = self._nodes.room_version
        return self._counted[2]

    @property
    def rows(self) -> list[int]:
        """The rows that fit, in ascending order."""
        rows: list[int] = self.fits.nonzero()[0].tolist()
        return rows

    @property
    def max_count(self) -> int:
        """An upper bound on `count` that costs nothing: the last count, until `room_version` grows.

        For requests with labels or job affinity it is the number of nodes, because they may fit on more nodes
        without anything becoming free.
        """
        if self._counted_room_version == self._nodes.room_version and not self._has_affinity:
            return self._counted[2]
        return len(self._nodes)

    @property
    def scores(self) -> Floats:
        """The weighted sum of the scores by row; minus infinity where a filter rejects the node."""
        fits = self.fits
        rows = self._stale(self._scores_at) if self._value_version == self._nodes.value_version else ALL_ROWS
        if rows is not None and self._wide:
            rows = ALL_ROWS
        if rows is not None:
            nodes = self._nodes
            if isinstance(rows, slice):
                self._scores = np.full(len(fits), REJECTED)
                fitting = np.flatnonzero(fits)
            else:
                self._scores[rows] = REJECTED
                fitting = rows[fits[rows]]
            if len(fitting):
                total: Floats = np.zeros(len(fitting))
                for each in self._active_scorers():
                    total += each.weight * each.scorer.score(self._part, nodes.columns, fitting)
                self._scores[fitting] = total
            self._scores_at = (nodes.layout_version, nodes.change_count)
            self._value_version = nodes.value_version
        return self._scores

    def _active_scorers(self) -> list[WeightedScorer]:
        """The scorers that distinguish nodes for this request, asked once per layout."""
        layout, found = self._active_cache
        if layout != self._nodes.layout_version:
            part, columns, found = self._part, self._nodes.columns, []
            for each in self._scorers:
                concerns = getattr(each.scorer, "concerns", None)
                if concerns is None or concerns(part, columns):
                    found.append(each)
            self._active_cache = self._nodes.layout_version, found
        return found

    def best_group(
        self, count: int, domains: TopologyDomains | GpuModelGroups, barred: Bools | None = None
    ) -> list[int]:
        """The best rows that satisfy the grouping and are not barred, ascending; empty if there are none."""
        if self.count < count:
            return []
        fits = self.fits if barred is None else self.fits & ~barred
        return domains.choose(np.flatnonzero(fits), self.scores, count)

    def best(self, count: int, barred: Bools | None = None) -> list[int]:
        """The best `count` rows in ascending order, fewer if fewer fit; among equal scores the first row."""
        if barred is not None:
            return sorted(self.in_order(barred)[:count])
        if self.count <= count:
            return self.rows
        if not self._active_scorers():
            return self.rows[:count]
        if count == 1:
            return [int(self.scores.argmax())]
        return sorted(self.in_order()[:count])

    def in_order(self, barred: Bools | None = None) -> list[int]:
        """All rows that fit and are not barred, the best score first."""
        if self.count <= 1 or not self._active_scorers():
            rows = self.rows
        else:
            rows = np.argsort(-self.scores, kind="stable").tolist()[: self.count]
        return rows if barred is None else [row for row in rows if not barred[row]]


def rows_passing(part: PerNodeRequest, columns: NodeTable, rows: Rows, filters: Sequence[Filter]) -> Bools:
    """The mask of the rows that all of these filters keep. There must be at least one filter."""
    mask = filters[0].keep(part, columns, rows)
    for each in filters[1:]:
        mask = mask & each.keep(part, columns, rows)
    return mask


def rows_possible(part: PerNodeRequest, idle: NodeTable, filters: Sequence[Filter]) -> Bools:
    """The mask of the idle nodes that these filters keep; a site filter that fails keeps all of them."""
    mask = np.ones(len(idle.open), dtype=np.bool_)
    for each in filters:
        mask &= getattr(each, "could_keep", each.keep)(part, idle, ALL_ROWS)
    return mask


def filters_for(part: PerNodeRequest, pipeline: SchedulingPolicy) -> list[Filter]:
    """The filters that look at anything this request asks for."""
    return [each for each in pipeline.filters if each.concerns(part)]


def is_static(plugin: Filter) -> bool:
    """Does the filter read only labels, taints and hardware?"""
    return bool(getattr(plugin, "static", False))
