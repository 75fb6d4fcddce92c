"""Records the data sets that jobs have read on each node, so that later jobs can run where their data is
cached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_DATASETS = 1_000
"""At most this many data sets are stored. When there are more, the data set with the oldest last use is
dropped.
"""
MOMENTS = 64
"""Levels (estimates of the cached part of a data set) are computed this many times within one retention time.
"""


@dataclass(frozen=True, slots=True)
class DatasetPolicy:
    """The settings of the table [datasets]: for how long, and for how many nodes, Corral stores that a data
    set was read.
    """

    retention_s: float = 259_200.0
    """Reads are stored for this many seconds. 0: reads are not stored."""
    least_run_s: float = 60.0
    """Reads of a job that ran on a node for fewer seconds are not stored, because the job has probably not
    read its data sets there.
    """
    nodes: int = 64
    """For one data set, at most this many nodes are stored: those with the latest use."""


DEFAULT_DATASETS = DatasetPolicy()


class DatasetReads:
    """For each data set, the nodes on which jobs have read the data set, with the time of the last use on
    each node.

    The level of a data set on a node is an estimate from 0 to 1: the part of the data set that the node still
    has in its cache. It is 1 at the last use, and falls in equal steps to 0 at the end of the retention.

    Algorithm
    1. `note`: at the end of a job on a node, store the time for each of its data sets. Delete the nodes whose
       last use is longer ago than the retention. If more nodes than `DatasetPolicy.nodes` remain, delete the
       nodes with the oldest last use.
    2. `advance`: the engine calls this method before each scheduling cycle. It rounds the present time down
       to a multiple of retention / MOMENTS seconds, and levels are computed for the rounded time. Levels
       therefore change only once in this interval, and cached scores of nodes stay valid within the interval.

    Invariant: the content depends only on the recorded events, so the content is the same after a restart or
    a replay. Cost: O(data sets of the job) for `note`, O(1) for `advance`, O(nodes of the data set) for
    `levels`.

    Example: the retention is 64 h. 16 h after a job that reads `imagenet` ended on gpu01, the level of
    `imagenet` on gpu01 is 0.75.
    """

    def __init__(self) -> None:
        self.policy = DEFAULT_DATASETS
        self.by_dataset: dict[str, dict[str, float]] = {}
        """The time of the last use, by data set and node."""
        self.by_node: dict[str, dict[str, float]] = {}
        """The time of the last use, by node and data set."""
        self.changed: dict[str, None] = {}
        """The data sets whose database rows must be written again."""
        self.version = 0
        """A number that increases whenever a level (estimate of the part of a data set that a node has
        cached) may have changed.
        """
        self._moment = -math.inf
        self._levels: dict[str, Mapping[str, float]] = {}

    def note(self, datasets: Iterable[str], node: str, ran_s: float, at: float) -> None:
        """Record that a job with these data sets ended on a node after `ran_s` seconds."""
        policy = self.policy
        if not policy.retention_s or ran_s < policy.least_run_s:
            return
        for name in datasets:
            self._put(name, node, at)
            self.changed[name] = None
            known = self.by_dataset[name]
            for other in [each for each, last in known.items() if at - last >= policy.retention_s]:
                self._forget(name, other)
            while len(known) > policy.nodes:
                self._forget(name, min(known, key=lambda each: (known[each], each)))
        while len(self.by_dataset) > MOST_DATASETS:
            oldest = min(self.by_dataset, key=lambda each: (max(self.by_dataset[each].values()), each))
            self.changed[oldest] = None
            for other in list(self.by_dataset[oldest]):
                self._forget(oldest, other)
        self._void()

    def load(self, name: str, nodes: Mapping[str, float]) -> None:
        """Load the database row of a data set: the time of the last use by node."""
        for node, at in nodes.items():
            self._put(name, node, at)
        self._void()

    def _put(self, name: str, node: str, at: float) -> None:
        self.by_dataset.setdefault(name, {})[node] = at
        self.by_node.setdefault(node, {})[name] = at

    def _forget(self, name: str, node: str) -> None:
        for table, one, other in ((self.by_dataset, name, node), (self.by_node, node, name)):
            del table[one][other]
            if not table[one]:
                del table[one]

    def _void(self) -> None:
        self._levels.clear()
        self.version += 1

    def advance(self, now: float) -> None:
        """Set the present time. `levels` computes the levels (estimates of what is cached) for this time."""
        step = self.policy.retention_s / MOMENTS
        moment = math.floor(now / step) * step if step else -math.inf
        if moment != self._moment:
            self._moment = moment
            self._void()

    def levels(self, name: str) -> Mapping[str, float]:
        """Return an estimate, from 0 to 1, of the part of a data set that each node still has in its cache.
        The result is by node name. Only nodes on which jobs have read the data set within the retention are
        included.
        """
        found = self._levels.get(name)
        if found is None:
            found = self._levels[name] = {
                node: level
                for node, at in self.by_dataset.get(name, {}).items()
                if (level := self._level(at)) > 0
            }
        return found

    def _level(self, at: float) -> float:
        retention_s = self.policy.retention_s
        return 1.0 - max(0.0, self._moment - at) / retention_s if retention_s else 0.0

    def on_node(self, node: str, now: float) -> list[tuple[str, float]]:
        """Return (name, time of the last use) for each data set that jobs have read on a node within the
        retention. The latest use comes first.
        """
        found = self.by_node.get(node, {}).items()
        kept = [(name, at) for name, at in found if now - at < self.policy.retention_s]
        return sorted(kept, key=lambda each: (-each[1], each[0]))
