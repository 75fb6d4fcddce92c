"""Job affinity and anti-affinity. Finds the nodes on which a job may run, depending on running jobs and their
labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from controller.core.cluster.node_table import Bools, Ints, NodeTable
from controller.core.model.request import PerNodeRequest
from wire.job.placement.job_affinity import JobTerm

Label = tuple[str, str]
TermOfUser = tuple[str, JobTerm]
"""(user of a running job, a required anti-affinity term of this job)."""
Key = TypeVar("Key", Label, TermOfUser)


class JobAffinityIndex:
    """Counts running jobs by label and node, and their anti-affinity terms by node.

    A term is like a pod affinity term of Kubernetes. It names a label of other jobs, a topology (a node label
    whose values are the domains) and a number of domains. `domains=None` means anti-affinity, `domains=1`
    means "in a domain where such a job runs", and a larger number n means "spread over n domains". `version`
    increases with each change. Cached results for all nodes are then invalid, because a job affects all nodes
    of its domain.

    Anti-affinity of a running job excludes only jobs of the same user. Otherwise a user could keep the jobs
    of other users off a rack or a zone with one small job. The terms of a waiting job restrict only this job,
    so these terms apply to running jobs of all users.

    Example: a job with the label app=db runs on n1 in rack r1. The affinity term "app=db on rack" allows only
    the nodes of r1. The same term as anti-affinity allows only nodes outside r1.
    """

    def __init__(self) -> None:
        self.version = 0
        self._running: dict[Label, dict[str, int]] = {}
        self._anti_affinity: dict[TermOfUser, dict[str, int]] = {}

    def add(self, part: PerNodeRequest, node: str) -> None:
        self._count(part, node, 1)

    def remove(self, part: PerNodeRequest, node: str) -> None:
        self._count(part, node, -1)

    def _count(self, part: PerNodeRequest, node: str, by: int) -> None:
        self.version += 1
        for label in part.labels:
            _add(self._running, label, node, by)
        for term in part.company:
            if term.domains is None and not term.prefer:
                _add(self._anti_affinity, (part.user, term), node, by)

    def snapshot(self) -> tuple[object, object]:
        """Return all counts, so that tests can compare two indexes."""
        return self._running, self._anti_affinity

    def nodes_allowed(self, part: PerNodeRequest, columns: NodeTable) -> Bools:
        """Return an array that is True for each node where the request may run. On such a node, the required
        affinity terms of the request are met, and no running job has an anti-affinity term against the
        request.
        """
        mask = np.ones(columns.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer:
                mask &= self.nodes_meeting(part, term, columns)
        for (user, term), nodes in self._anti_affinity.items():
            if user == part.user and (term.key, term.value) in part.labels:
                mask &= ~_within(_domains_of(nodes, term.topology, columns), term.topology, columns)
        return mask

    def copy(self) -> JobAffinityIndex:
        other = JobAffinityIndex()
        other._running = {label: dict(nodes) for label, nodes in self._running.items()}
        other._anti_affinity = {key: dict(nodes) for key, nodes in self._anti_affinity.items()}
        return other

    def affects(self, part: PerNodeRequest) -> bool:
        """Return whether an affinity term limits the nodes for the request: a required term of the request,
        or an anti-affinity term of a running job.

        A term of a running job counts if both jobs have the same user and the term names a label of the
        request.
        """
        return any(not term.prefer for term in part.company) or any(
            user == part.user and (term.key, term.value) in part.labels for user, term in self._anti_affinity
        )

    def nodes_barred_by(
        self, part: PerNodeRequest, other: PerNodeRequest, rows: list[int], columns: NodeTable
    ) -> Bools | None:
        """Return which nodes (True by row number) a job may not use because of affinity terms between this
        job and another job. This job has the request `part`. The other job has the request `other` and will
        run on the nodes `rows`.

        The affinity terms of both requests apply. Return None if neither request has a term about the other
        job.
        """
        mask = None
        for term, label in _between(part, other):
            if term.domains is None:
                codes = columns.domain(term.topology)
                lost = _within({int(code) for code in codes[rows] if code >= 0}, term.topology, columns)
            else:
                # The term limits the number of domains in which jobs with the label run (one for "same
                # domain"). A start in a domain that already has such a job adds no domain. A start in any
                # other domain adds a domain and could exceed the limit.
                there = _domains_of(self._running.get(label, {}), term.topology, columns)
                lost = (columns.domain(term.topology) >= 0) & ~_within(there, term.topology, columns)
            mask = lost if mask is None else mask | lost
        return mask

    def nodes_meeting(self, part: PerNodeRequest, term: JobTerm, columns: NodeTable) -> Bools:
        nodes = self._running.get((term.key, term.value), {})
        domains = _domains_of(nodes, term.topology, columns)
        inside = _within(domains, term.topology, columns)
        named: Bools = columns.domain(term.topology) >= 0
        if term.domains is None:
            return ~inside
        if len(domains) >= term.domains:
            return inside
        if not domains and (term.domains > 1 or (term.key, term.value) in part.labels):
            # No job with this label runs yet, so the first job with it may start in every domain.
            return named
        return named & ~inside if term.domains > 1 else inside


def _between(part: PerNodeRequest, other: PerNodeRequest) -> Iterator[tuple[JobTerm, Label]]:
    """Yield (term, label) for each affinity term by which two requests limit each other. `label` is the label
    that the term names.

    1. If both requests are of the same user: the required terms of `other` that name a label of `part`.
    2. The anti-affinity terms of `part` that name a label of `other`.
    """
    for term in other.company if part.user == other.user else ():
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
