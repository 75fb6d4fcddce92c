"""Finds running jobs that give way to a waiting job for a time slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.free_resources import FreeResources, free_on, row_trial
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.cluster.node_table import Bools
from controller.core.model.job import Job
from controller.core.placement.placer import Placement, Placer, Shape
from controller.core.placement.ranking import filters_for, rows_passing
from controller.core.state.state import State


@dataclass(frozen=True, slots=True)
class SliceExchange:
    """The nodes `rows` on which a waiting job fits when the running jobs `victims` have left. `worth` is the
    sum of what the victims are worth: their expected ends for each second of run time.
    """

    rows: tuple[int, ...]
    victims: tuple[int, ...]
    placement: Placement
    worth: float


@dataclass(frozen=True, slots=True)
class _Node:
    worth: float
    left_free: int
    row: int
    victims: tuple[int, ...]


def find_exchange(
    state: State,
    placer: Placer,
    shape: Shape,
    barred: Bools,
    eligible: Callable[[Job], bool],
    worth: Mapping[int, float],
) -> SliceExchange | None:
    """Return the nodes and victims that are worth the least together. Return None if the request would not
    fit even if all eligible running jobs left, or if a filter rejects one of the chosen nodes.

    1. On each node, take the eligible running jobs, the one that is worth the least for each GPU first, until
       the request fits.
    2. Keep each victim on the node if the request fits although this victim stays. Try the victim that is
       worth the most first.
    3. Choose the `shape.nodes` nodes whose victims are worth the least. Among equal nodes, choose the node
       with the fewest GPUs left over.
    4. Check the nodes with all filters, as if the victims had left.
    """
    nodes, jobs, columns = state.nodes, state.jobs, state.nodes.columns
    needs = gpu_needs_of(shape.part, columns)
    found: list[_Node] = []
    for row, node in enumerate(nodes.rows):
        if node is None or barred[row] or not node.up or node.drained:
            continue
        free, chosen = free_on(nodes, row), []
        around = [each for each in node.held if each not in node.leaving and eligible(jobs[each])]
        around.sort(key=lambda each: (worth[each] / max(jobs[each].spec.gpus, 1.0), each))
        for victim in around:
            if free.fits(shape.part, needs, row):
                break
            free.add(node, node.held[victim], 1)
            chosen.append(victim)
        if not free.fits(shape.part, needs, row):
            continue
        for victim in sorted(chosen, key=lambda each: (-worth[each], each)):
            free.add(node, node.held[victim], -1)
            if free.fits(shape.part, needs, row):
                chosen.remove(victim)
            else:
                free.add(node, node.held[victim], 1)
        found.append(_Node(sum(worth[each] for each in chosen), sum(free.gpus), row, tuple(chosen)))
    if len(found) < shape.nodes:
        return None
    found.sort(key=lambda each: (each.worth, each.left_free, each.row))
    taken = sorted(found[: shape.nodes], key=lambda each: each.row)
    victims = tuple(dict.fromkeys(victim for each in taken for victim in each.victims))
    frees = {each.row: _free_without(state, each.row, victims) for each in taken}
    for row, free in frees.items():
        with row_trial(columns, row, free):
            passing = rows_passing(
                shape.part, columns, np.array([row], dtype=np.intp), filters_for(shape.part, placer.pipeline)
            )
        if not passing[0]:
            return None
    placement = placer.allocate_rows(shape, list(frees), frees)
    return SliceExchange(tuple(frees), victims, placement, sum(worth[each] for each in victims))


def _free_without(state: State, row: int, victims: tuple[int, ...]) -> FreeResources:
    node, free = state.nodes.rows[row], free_on(state.nodes, row)
    for victim in victims:
        allocation = node.held.get(victim)
        if allocation is not None and victim not in node.leaving:
            free.add(node, allocation, 1)
    return free
