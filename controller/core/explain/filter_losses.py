"""Counts the nodes that each filter rejects for a job. Finds the filters that prevent the start of the job.

A filter is binding if it now rejects nodes that could hold the job if no jobs ran on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import ALL_ROWS, Bools, NodeTable
from controller.core.framework.interfaces import Filter
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer
from controller.core.placement.ranking import filters_for, is_static
from wire.api.reasons import FilterLoss
from wire.text import counted

MAX_EXAMPLES = 3
"""The most nodes that a sentence names for each filter."""


@dataclass(frozen=True, slots=True)
class BindingFilters:
    """The number of nodes that could hold the request if they were idle, and how many of these nodes each
    filter rejects now.
    """

    suitable: int
    losses: tuple[FilterLoss, ...]

    def __str__(self) -> str:
        """Return the messages of the two filters that reject the most nodes, each with the names of some
        rejected nodes.
        """
        largest = sorted(self.losses, key=lambda loss: -loss.lost)[:2]
        return "; ".join(f"{loss.message} ({_names(loss)})" for loss in largest)


def _names(loss: FilterLoss) -> str:
    more = loss.lost - len(loss.examples)
    return ", ".join(loss.examples) + (f" and {more} more" if more else "")


def filter_losses(
    placer: Placer, part: PerNodeRequest, columns: NodeTable
) -> tuple[tuple[FilterLoss, ...], int]:
    """Return (how many nodes each filter rejects, how many nodes all filters accept).

    A node that several filters reject counts only for the first of these filters. A filter that is not static
    (its result depends on running jobs) has two counts: the nodes that it would reject even without running
    jobs ("no B200 GPU"), and the nodes that it rejects only because of running jobs ("no free B200 GPU").
    """
    left = np.ones(columns.height, dtype=np.bool_)
    idle = placer.nodes.idle
    found: list[FilterLoss] = []
    for each in _gpus_first(filters_for(part, placer.pipeline)):
        keeps = each.keep(part, columns, ALL_ROWS)
        lost = left & ~keeps
        never = lost if columns is idle else lost & ~each.keep(part, idle, ALL_ROWS)
        if is_static(each) or each.name == "available":
            found += _static_losses(placer, each, part, columns, lost)
        else:
            found += _loss(placer, each, never, _message(each, part, idle, never, idle=True))
            found += _loss(
                placer, each, lost & ~never, _message(each, part, columns, lost & ~never, idle=False)
            )
        left &= keeps
    return tuple(found), int(np.count_nonzero(left))


def _static_losses(
    placer: Placer, plugin: Filter, part: PerNodeRequest, columns: NodeTable, lost: Bools
) -> Iterator[FilterLoss]:
    """Count the nodes in `lost`. The filter `plugin` rejects these nodes because of their labels, taints,
    hardware or state.

    If the filter has a method `apart`, which divides a request into several conditions, count the nodes that
    each condition excludes.
    """
    apart = getattr(plugin, "apart", None)
    left = lost
    for one in [part] if apart is None else apart(part):
        taken = left if apart is None else left & ~plugin.keep(one, columns, ALL_ROWS)
        yield from _loss(placer, plugin, taken, plugin.explain(one))
        left = left & ~taken


def binding_filters(placer: Placer, part: PerNodeRequest) -> BindingFilters:
    """Return the filters that reject nodes now, although these nodes could hold the request if they were
    idle.

    Example: 99 of 100 nodes lack a label that the job requires, and the CPUs of the last node are in use. The
    binding filter is the filter for CPUs and not the filter for labels, because the user has excluded the 99
    nodes on purpose.
    """
    columns, suitable = placer.nodes.columns, placer.possible(part)
    left, found = suitable.copy(), []
    for each in _gpus_first(filters_for(part, placer.pipeline)):
        keeps = each.keep(part, columns, ALL_ROWS)
        lost = left & ~keeps
        found += _loss(placer, each, lost, _message(each, part, columns, lost, idle=False))
        left &= keeps
    return BindingFilters(int(np.count_nonzero(suitable)), tuple(found))


def _gpus_first(filters: Iterable[Filter]) -> list[Filter]:
    """Return the filters with `gpu` moved before `capacity`, so that missing GPUs are named first.

    A job usually gets CPU and memory in proportion to its GPUs. So a node without free GPUs usually also
    lacks CPU and memory. Missing GPUs are then the better explanation.
    """
    found = list(filters)
    names = [each.name for each in found]
    if "gpu" in names and "capacity" in names and names.index("capacity") < names.index("gpu"):
        found.insert(names.index("capacity"), found.pop(names.index("gpu")))
    return found


def _loss(placer: Placer, plugin: Filter, lost: Bools, message: str) -> list[FilterLoss]:
    rows = np.flatnonzero(lost)
    names = tuple(placer.nodes.rows[row].name for row in rows[:MAX_EXAMPLES])
    return [FilterLoss(plugin.name, len(rows), message, names)] if len(rows) else []


def _message(plugin: Filter, part: PerNodeRequest, columns: NodeTable, lost: Bools, *, idle: bool) -> str:
    """Return the reason why the filter `plugin` rejects the nodes in `lost`. `idle` is True if the filter
    would reject these nodes even without running jobs.

    If the filter has a method `shortage`, the reason is about these nodes in particular. Otherwise its method
    `explain` returns a general reason.
    """
    shortage = getattr(plugin, "shortage", None)
    rows = np.flatnonzero(lost)
    if shortage is not None and len(rows):
        return str(shortage(part, columns, rows, idle=idle))
    return plugin.explain(part) + (" even when idle" if idle else "")


def uneven_gpus_hint(gpus: int, nodes: int, largest: int) -> str:
    """Return a hint for the user if no job can have exactly `gpus` GPUs, because each of its at most `nodes`
    nodes must give the same number of GPUs. Otherwise, or if there are too few GPUs, return an empty text.

    `largest` is the number of GPUs of the node with the most GPUs.
    """

    def fits(number: int) -> bool:
        return any(number % count == 0 and number // count <= largest for count in range(1, nodes + 1))

    if not largest or gpus > nodes * largest or fits(gpus):
        return ""
    fewer = next(number for number in range(gpus - 1, 0, -1) if fits(number))
    more = next((number for number in range(gpus + 1, nodes * largest + 1) if fits(number)), None)
    instead = f"{fewer}" if more is None else f"{fewer} or {more}"
    return (
        f"A job gets the same number of GPUs on each of its nodes, and {counted(gpus, 'GPU')} do not divide "
        f"evenly over nodes with at most {largest}: ask for {instead}."
    )
