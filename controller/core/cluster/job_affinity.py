"""Job affinity and anti-affinity: where jobs with labels run, and which nodes that leaves for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from controller.core.cluster.node_table import Bools, Ints, NodeTable
from controller.core.model.request import PerNodeRequest
from wire.job.job_affinity import JobTerm

Label = tuple[str, str]
Key = TypeVar("Key", Label, JobTerm)


class JobAffinityIndex:
    """Counts jobs by label and node, and anti-affinity terms of jobs by node.

    A job term names a label of other jobs, a topology (a node label whose values are the domains) and how
    many domains those jobs may span: `domains=None` is anti-affinity, 1 is "in the same domain", n > 1 is
    "spread over n domains". `version` grows with each change. Masks computed before are then void on all
    rows, because a job on one node matters to all nodes of its domain.

    Example: a job with the label app=db runs on n1 in rack r1. The term "app=db on rack" keeps the nodes of
    r1; the same as anti-affinity keeps all nodes outside r1.
    """

    def __init__(self) -> None:
        self.version = 0
        self._running: dict[Label, dict[str, int]] = {}
        self._anti_affinity: dict[JobTerm, dict[str, int]] = {}

    def add(self, part: PerNodeRequest, node: str) -> None:
        """Count a job that holds resources on the node."""
        self._count(part, node, 1)

    def remove(self, part: PerNodeRequest, node: str) -> None:
        """Count one job less on the node."""
        self._count(part, node, -1)

    def _count(self, part: PerNodeRequest, node: str, by: int) -> None:
        self.version += 1
        for label in part.labels:
            _add(self._running, label, node, by)
        for term in part.company:
            if term.domains is None and not term.prefer:
                _add(self._anti_affinity, term, node, by)

    def snapshot(self) -> tuple[object, object]:
        """All counts, for comparison."""
        return self._running, self._anti_affinity

    def nodes_allowed(self, part: PerNodeRequest, columns: NodeTable) -> Bools:
        """The nodes where all required terms of the request hold, and all anti-affinity of running jobs."""
        mask = np.ones(columns.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer:
                mask &= self.nodes_meeting(part, term, columns)
        for term, nodes in self._anti_affinity.items():
            if (term.key, term.value) in part.labels:
                mask &= ~_within(_domains_of(nodes, term.topology, columns), term.topology, columns)
        return mask

    def copy(self) -> JobAffinityIndex:
        """An independent copy."""
        other = JobAffinityIndex()
        other._running = {label: dict(nodes) for label, nodes in self._running.items()}
        other._anti_affinity = {term: dict(nodes) for term, nodes in self._anti_affinity.items()}
        return other

    def affects(self, part: PerNodeRequest) -> bool:
        """Does any required term, of the request or of a running job about its labels, limit its nodes?"""
        return any(not term.prefer for term in part.company) or any(
            (term.key, term.value) in part.labels for term in self._anti_affinity
        )

    def nodes_barred_by(
        self, part: PerNodeRequest, other: PerNodeRequest, rows: list[int], columns: NodeTable
    ) -> Bools | None:
        """Nodes where the request would break a term of `other`, which will run on these rows; or None."""
        mask = None
        for term, label in _between(part, other):
            if term.domains is None:
                codes = columns.domain(term.topology)
                lost = _within({int(code) for code in codes[rows] if code >= 0}, term.topology, columns)
            else:  # in a domain where such a job runs already, one more changes nothing
                there = _domains_of(self._running.get(label, {}), term.topology, columns)
                lost = (columns.domain(term.topology) >= 0) & ~_within(there, term.topology, columns)
            mask = lost if mask is None else mask | lost
        return mask

    def nodes_meeting(self, part: PerNodeRequest, term: JobTerm, columns: NodeTable) -> Bools:
        """The nodes where this term holds."""
        nodes = self._running.get((term.key, term.value), {})
        domains = _domains_of(nodes, term.topology, columns)
        inside = _within(domains, term.topology, columns)
        named: Bools = columns.domain(term.topology) >= 0
        if term.domains is None:
            return ~inside
        if len(domains) >= term.domains:
            return inside
        if not domains and (term.domains > 1 or (term.key, term.value) in part.labels):
            return named  # because the first of these jobs may start anywhere
        return named & ~inside if term.domains > 1 else inside


def _between(part: PerNodeRequest, other: PerNodeRequest) -> Iterator[tuple[JobTerm, Label]]:
    """The required terms of `other` about `part`, and the anti-affinity of `part` about `other`."""
    for term in other.company:
        if not term.prefer and (term.key, term.value) in part.labels:
            yield term, (term.key, term.value)
    for term in part.company:
        if not term.prefer and term.domains is None and (term.key, term.value) in other.labels:
            yield term, (term.key, term.value)


def _add(known: dict[Key, dict[str, int]], key: Key, node: str, by: int) -> None:
    nodes = known.setdefault(key, {})
    nodes[node] = nodes.get(node, 0) + by
    if not nodes[node]:
        del nodes[node]
    if not nodes:
        del known[key]


def _domains_of(nodes: Iterable[str], topology: str, columns: NodeTable) -> set[int]:
    row_of = columns.row_of
    rows = [row_of[node] for node in nodes if node in row_of]
    return {int(code) for code in columns.domain(topology)[rows] if code >= 0}


def _within(domains: set[int], topology: str, columns: NodeTable) -> Bools:
    codes: Ints = columns.domain(topology)
    inside: Bools = np.isin(codes, list(domains))
    return inside
