"""Which labelled jobs run where, and what that means for those that want them near or apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from controller.core.columns import Bools, Columns, Ints
from controller.core.requests import Part
from wire.company import JobTerm

Label = tuple[str, str]
Key = TypeVar("Key", Label, JobTerm)


class Company:
    """Counts by label and node, and by refusal and node, of what jobs hold something.

    `changes` grows with them: masks over domains are void then, whichever rows have changed.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._there: dict[Label, dict[str, int]] = {}
        self._refused: dict[JobTerm, dict[str, int]] = {}

    def enter(self, part: Part, node: str) -> None:
        """A job holds something on the node."""
        self._count(part, node, 1)

    def leave(self, part: Part, node: str) -> None:
        """It does no longer."""
        self._count(part, node, -1)

    def _count(self, part: Part, node: str, by: int) -> None:
        self.changes += 1
        for label in part.labels:
            _add(self._there, label, node, by)
        for term in part.company:
            if term.domains is None and not term.prefer:
                _add(self._refused, term, node, by)

    def snapshot(self) -> tuple[object, object]:
        """Everything counted, for comparison."""
        return self._there, self._refused

    def keep(self, part: Part, columns: Columns) -> Bools:
        """The nodes where the part has the company it demands, and is welcome."""
        mask = np.ones(columns.height, dtype=np.bool_)
        for term in part.company:
            if not term.prefer:
                mask &= self.pleases(part, term, columns)
        for term, nodes in self._refused.items():
            if (term.key, term.value) in part.labels:
                mask &= ~_within(_domains_of(nodes, term.topology, columns), term.topology, columns)
        return mask

    def twin(self) -> Company:
        """The same counts, to be changed without consequences."""
        other = Company()
        other._there = {label: dict(nodes) for label, nodes in self._there.items()}
        other._refused = {term: dict(nodes) for term, nodes in self._refused.items()}
        return other

    def concerns(self, part: Part) -> bool:
        """Does it matter to the part who is where?"""
        return any(not term.prefer for term in part.company) or any(
            (term.key, term.value) in part.labels for term in self._refused
        )

    def spoils(self, part: Part, other: Part, rows: list[int], columns: Columns) -> Bools | None:
        """Where the part would keep the other, which is to run in these rows, from some of them."""
        mask = None
        for term, label in _between(part, other):
            if term.domains is None:
                codes = columns.domain(term.topology)
                lost = _within({int(code) for code in codes[rows] if code >= 0}, term.topology, columns)
            else:  # where one of them runs already, one more changes nothing
                there = _domains_of(self._there.get(label, {}), term.topology, columns)
                lost = (columns.domain(term.topology) >= 0) & ~_within(there, term.topology, columns)
            mask = lost if mask is None else mask | lost
        return mask

    def pleases(self, part: Part, term: JobTerm, columns: Columns) -> Bools:
        """The nodes that are as one term says."""
        nodes = self._there.get((term.key, term.value), {})
        domains = _domains_of(nodes, term.topology, columns)
        inside = _within(domains, term.topology, columns)
        named: Bools = columns.domain(term.topology) >= 0
        if term.domains is None:
            return ~inside
        if len(domains) >= term.domains:
            return inside
        if not domains and (term.domains > 1 or (term.key, term.value) in part.labels):
            return named  # somebody has to be the first
        return named & ~inside if term.domains > 1 else inside


def _between(part: Part, other: Part) -> Iterator[tuple[JobTerm, Label]]:
    """What the other demands of the part, and whatever the part has against the other."""
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


def _domains_of(nodes: Iterable[str], topology: str, columns: Columns) -> set[int]:
    row_of = columns.row_of
    rows = [row_of[node] for node in nodes if node in row_of]
    return {int(code) for code in columns.domain(topology)[rows] if code >= 0}


def _within(domains: set[int], topology: str, columns: Columns) -> Bools:
    codes: Ints = columns.domain(topology)
    inside: Bools = np.isin(codes, list(domains))
    return inside
