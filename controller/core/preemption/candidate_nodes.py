"""Chooses the nodes on which stopping jobs loses the least, for one node or for all nodes of a gang."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import Floats
from controller.core.cluster.topology_domains import GroupChoice

ROUNDING = 1 + 1e-9
"""Two losses count as equal if the greater one is at most the smaller one times this number."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the request fits when `victims` have left. `loss` is the cost of stopping these
    victims, in GPU-milli-seconds.
    """

    loss: float
    row: int
    victims: tuple[int, ...]


def by_bound(losses: Floats) -> Iterator[tuple[float, int]]:
    """Yield (bound, row) of each node with a finite lower bound on its loss, the lowest bound first. If
    several nodes have this bound, the lowest row is first. The bounds in `losses` are overwritten.
    """
    while True:
        row = int(losses.argmin())
        bound = float(losses[row])
        if bound == np.inf:
            return
        losses[row] = np.inf
        yield bound, row


def cheapest_nodes(
    rows: Iterable[tuple[float, int]], nodes: int, candidate: Callable[[int], Candidate | None]
) -> list[Candidate]:
    """Return the `nodes` candidates that lose the least, the least loss first. Return an empty result if
    there are too few. `rows` contains (lower bound on the loss, row), the lowest bound first.
    """
    found: list[Candidate] = []
    for bound, row in rows:
        if len(found) == nodes and bound * ROUNDING >= found[-1].loss:
            break
        each = candidate(row)
        if each is not None:
            insort(found, each, key=lambda each: (each.loss, each.row))
            del found[nodes:]
    return found if len(found) == nodes else []


def cheapest_choice(
    choices: Iterable[GroupChoice], losses: Sequence[float], candidate: Callable[[int], Candidate | None]
) -> list[Candidate]:
    """Return the candidates of the choice that loses the least. Return an empty result if no choice has
    enough candidates. `losses` contains a lower bound on the loss of each node, by row.

    1. For each group, add up the lowest bounds of as many nodes as the gang needs in a group. For each
       choice, add up the lowest sums of as many groups as the gang needs.
    2. Go through the choices, and through the groups of a choice, from the lowest sum upwards. Stop when the
       next sum is not below the best loss so far.
    """
    sums = []
    for choice in choices:
        groups = []
        for group in choice.groups:
            rows = sorted((losses[row], row) for row in group)
            groups.append((sum(bound for bound, _ in rows[: choice.each]), rows))
        groups.sort()
        sums.append((sum(bound for bound, _ in groups[: choice.count]), choice, groups))
    best, least = [], math.inf
    for bound, choice, groups in sorted(sums, key=lambda each: each[0]):
        if bound * ROUNDING >= least:
            break
        chosen = _cheapest_groups(groups, choice, candidate)
        total = sum(each.loss for each in chosen)
        if chosen and total < least:
            best, least = chosen, total
    return best


def _cheapest_groups(
    groups: Iterable[tuple[float, list[tuple[float, int]]]],
    choice: GroupChoice,
    candidate: Callable[[int], Candidate | None],
) -> list[Candidate]:
    """Choose the `choice.count` groups of nodes (such as racks) where preemption loses the least work, and
    return the cheapest candidate nodes of these groups. Return an empty result if too few groups have
    `choice.each` candidates.

    Each item of `groups` is (lower bound of the loss in the group, rows of its nodes in the node table), the
    lowest bound first.
    """
    found: list[tuple[float, list[Candidate]]] = []
    for bound, rows in groups:
        if len(found) == choice.count and bound * ROUNDING >= found[-1][0]:
            break
        chosen = cheapest_nodes(rows, choice.each, candidate)
        if chosen:
            insort(found, (sum(each.loss for each in chosen), chosen), key=lambda each: each[0])
            del found[choice.count :]
    return [each for _, chosen in found for each in chosen] if len(found) == choice.count else []
