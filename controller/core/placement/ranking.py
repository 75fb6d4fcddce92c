"""Ranks the nodes for one request: filters reject nodes, and scorers rate the remaining nodes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from controller.core.cluster.network_tree import NetworkTree
from controller.core.cluster.node_table import ALL_ROWS, Bools, Floats, NodeTable, Rows
from controller.core.cluster.nodes import Nodes
from controller.core.cluster.topology_domains import TopologyDomains
from controller.core.framework.interfaces import Filter, SchedulingPolicy, WeightedScorer
from controller.core.model.request import PerNodeRequest
from controller.core.placement.one_gpu_model import GpuModelGroups

REJECTED = -np.inf


class NodeRanking:
    """The nodes on which one request fits now, with their scores. All jobs with this request share one
    ranking.

    A row is the entry of a node in the node table.

    Algorithm
    1. Static filters read only labels, taints and hardware. Static filters are called when nodes have been
       added or removed, or when labels, taints or hardware have changed. The scorers that can give the nodes
       different scores for this request are found at the same time.
    2. In `update`, call the other filters for the rows that changed since the last call.
    3. When `scores` is read, call the scorers for the changed rows on which the request fits. A scorer that
       gives all nodes the same score is not called. `scores` is read only if the request fits on more nodes
       than the job needs.

    Validity of the cache (the docstring of `Nodes` explains the versions): `_fits_at` and `_scores_at` are
    (layout_version, change_count) at the last update. All rows are computed again if `layout_version`
    differs, or if more than half of the rows changed. For requests with labels or job affinity, all rows are
    computed again whenever a job with labels starts or ends, because this job affects all nodes of its
    topology domain. All scores are computed again when `value_version` increases, when any row has changed
    and a scorer compares nodes with each other (`wide`), and, for a request with data sets, when nodes have
    read data sets.

    Invariant: after `update`, `fits` equals the result of all filters for all rows. Cost: O(changed rows *
    filters) for `fits`, and O(changed rows * scorers) for `scores`.

    Example: 12 of 1,000 nodes have changed since the last cycle. The filters are called for these 12 rows.
    The request fits on 3 of them, and the scorers are called for these 3 rows. The other 988 scores are not
    computed again.
    """

    __slots__ = (
        "_affinity_version",
        "_counted_room_version",
        "_datasets_version",
        "_filters",
        "_fits_at",
        "_hardware_at",
        "_has_affinity",
        "_nodes",
        "_part",
        "_possible",
        "_scorers",
        "_scores",
        "_scores_at",
        "_static",
        "_static_mask",
        "_value_version",
        "_wide",
        "active_scorers",
        "count",
        "fits",
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
        self.active_scorers: list[WeightedScorer] = []
        """The scorers that do not give all nodes the same score for this request."""
        self._static_mask: Bools | None = None
        """Which nodes (True by row number) all static filters accept. None if there are no static filters."""
        self._possible: Bools = np.empty(0, dtype=np.bool_)
        self._hardware_at = -1
        """The value of `Nodes.layout_version` when `_static_mask`, `_possible` and `active_scorers` were
        computed.
        """
        self.fits: Bools = np.empty(0, dtype=np.bool_)
        """Which nodes (True by row number) all filters accepted at the last update."""
        self.count = 0
        """The number of nodes that all filters accepted at the last update."""
        self._scores: Floats = np.empty(0)
        self._fits_at = self._scores_at = (-1, 0)
        self._value_version = self._datasets_version = -1
        self._affinity_version = 0
        self._counted_room_version = -1

    def copy(self) -> NodeRanking:
        """Return a copy. Changes of the copy do not change this ranking."""
        other = copy(self)
        other.fits, other._scores = self.fits.copy(), self._scores.copy()
        return other

    def _stale(self, seen: tuple[int, int]) -> Rows | None:
        """Return the rows of the node table that must be computed again, because their nodes have changed.
        Return None if no node has changed.

        `seen` is (layout_version, change_count) of the last update. If the layout or more than half of the
        nodes have changed, all rows are returned.
        """
        nodes = self._nodes
        layout, changes = seen
        if layout == nodes.layout_version and changes == nodes.change_count:
            return None
        rows = nodes.changed_since(changes) if layout == nodes.layout_version else None
        if rows is None or len(rows) > len(nodes.by_name) // 2 + 1:
            return ALL_ROWS
        return np.array(rows if len(rows) == 1 else sorted(set(rows)), dtype=np.intp)

    def _read_hardware(self) -> None:
        """Call the static filters again, find the scorers that can give the nodes different scores for this
        request, and compute `possible`. All this depends only on labels, taints and hardware.
        """
        part, nodes = self._part, self._nodes
        columns = nodes.columns
        self._static_mask = rows_passing(part, columns, ALL_ROWS, self._static) if self._static else None
        self.active_scorers = []
        for each in self._scorers:
            concerns = getattr(each.scorer, "concerns", None)
            if concerns is None or concerns(part, columns):
                self.active_scorers.append(each)
        self._possible = rows_possible(part, nodes.idle, [*self._filters, *self._static])
        self._hardware_at = nodes.layout_version

    @property
    def possible(self) -> Bools:
        """Which nodes (True by row number) could hold the request without running jobs."""
        if self._hardware_at != self._nodes.layout_version:
            self._read_hardware()
        return self._possible

    def update(self) -> None:
        """Update `fits` (on which nodes the request fits) and `count` (the number of these nodes). Only nodes
        that have changed since the last call are checked.
        """
        nodes = self._nodes
        # Read `nodes.columns` before the versions, because reading `nodes.columns` can change
        # `layout_version`.
        columns = nodes.columns
        rows = self._stale(self._fits_at)
        if self._has_affinity and self._affinity_version != nodes.job_affinity.version:
            # Compute all rows again, because a job with labels has started or ended, and jobs with affinity
            # to it may now fit, or no longer fit, on any node of its topology domain.
            rows, self._value_version = ALL_ROWS, -1
            self._affinity_version = nodes.job_affinity.version
        if rows is not None:
            mask = rows_passing(self._part, columns, rows, self._filters)
            if self._hardware_at != nodes.layout_version:
                self._read_hardware()
            if self._static_mask is not None:
                mask = mask & self._static_mask[rows]
            if isinstance(rows, slice):
                self.fits = mask
            else:
                self.fits[rows] = mask
            self.count = int(np.count_nonzero(self.fits))
            self._fits_at = (nodes.layout_version, nodes.change_count)
        self._counted_room_version = nodes.room_version

    @property
    def rows(self) -> list[int]:
        """The row numbers of the nodes that can hold the request now, in ascending order."""
        rows: list[int] = self.fits.nonzero()[0].tolist()
        return rows

    @property
    def max_count(self) -> int:
        """An upper bound on the number of nodes on which the request fits now. It is computed without calling
        filters.

        If no resources have become free since the last update, the bound is `count`. Otherwise the bound is
        the number of all nodes. For requests with labels or job affinity, the bound is always the number of
        all nodes. Such a request may fit on more nodes even if no resources became free.
        """
        if self._counted_room_version == self._nodes.room_version and not self._has_affinity:
            return self.count
        return len(self._nodes)

    @property
    def scores(self) -> Floats:
        """The weighted sum of the scores of each node. It is minus infinity for a node that a filter
        rejects.
        """
        fits = self.fits
        rows = self._stale(self._scores_at) if self._value_version == self._nodes.value_version else ALL_ROWS
        if self._part.datasets and self._datasets_version != self._nodes.datasets.version:
            rows, self._datasets_version = ALL_ROWS, self._nodes.datasets.version
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
                for each in self.active_scorers:
                    total += each.weight * each.scorer.score(self._part, nodes.columns, fitting)
                self._scores[fitting] = total
            self._scores_at = (nodes.layout_version, nodes.change_count)
            self._value_version = nodes.value_version
        return self._scores

    def best_group(
        self, count: int, domains: TopologyDomains | GpuModelGroups | NetworkTree, barred: Bools | None = None
    ) -> list[int]:
        """Return the row numbers of the `count` best nodes of one group of `domains`, in ascending order.
        `barred` is True for each node that must not be used. Return an empty result if no group has enough
        nodes.
        """
        if self.count < count:
            return []
        fits = self.fits if barred is None else self.fits & ~barred
        return domains.choose(np.flatnonzero(fits), self.scores, count)

    def best(self, count: int, barred: Bools | None = None) -> list[int]:
        """Return the row numbers of the `count` nodes with the best scores, in ascending order. Return fewer
        if the request fits on fewer nodes. Among nodes with equal scores, prefer the first by name.
        """
        if barred is not None:
            return sorted(self.in_order(barred)[:count])
        if self.count <= count:
            return self.rows
        if not self.active_scorers:
            return self.rows[:count]
        if count == 1:
            return [int(self.scores.argmax())]
        return sorted(self.in_order()[:count])

    def in_order(self, barred: Bools | None = None) -> list[int]:
        """Return the row numbers of the nodes on which the request fits, the best score first.

        `barred` is True for each node that is left out.
        """
        if self.count <= 1 or not self.active_scorers:
            rows = self.rows
        else:
            rows = np.argsort(-self.scores, kind="stable").tolist()[: self.count]
        return rows if barred is None else [row for row in rows if not barred[row]]


def rows_passing(part: PerNodeRequest, columns: NodeTable, rows: Rows, filters: Sequence[Filter]) -> Bools:
    """Return which nodes of `rows` (True by position) all filters accept. `filters` must not be empty."""
    mask = filters[0].keep(part, columns, rows)
    for each in filters[1:]:
        mask = mask & each.keep(part, columns, rows)
    return mask


def rows_possible(part: PerNodeRequest, idle: NodeTable, filters: Sequence[Filter]) -> Bools:
    """Return which nodes (True by row number) all these filters would accept without running jobs.

    A filter may have the method `could_keep`, which is then called in place of `keep`. With it, a filter
    plugin that has failed accepts all nodes, so that it makes no job impossible.
    """
    mask = np.ones(len(idle.open), dtype=np.bool_)
    for each in filters:
        mask &= getattr(each, "could_keep", each.keep)(part, idle, ALL_ROWS)
    return mask


def filters_for(part: PerNodeRequest, pipeline: SchedulingPolicy) -> list[Filter]:
    """Return the filters that check something in this request. All other filters accept every node."""
    return [each for each in pipeline.filters if each.concerns(part)]


def is_static(plugin: Filter) -> bool:
    """Return whether the filter is static: a static filter reads only labels, taints and hardware, which jobs
    do not change.
    """
    return bool(getattr(plugin, "static", False))
