"""What a job could do without or with less of, the smaller concession first; easing.py tries which help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.core.columns import Bools
from controller.core.placement import Placer
from controller.core.requests import ask_of
from wire.gpuwish import PREFER, REQUIRE, GpuWish
from wire.spec import JobSpec, gpus_text
from wire.text import counted, duration, memory, plain

MOST_STEPS = 16
"""Amounts of one kind that are looked at, between what is asked for and next to nothing."""
LIMITS_S = tuple(60 * each for each in (1440, 720, 480, 360, 240, 180, 120, 90, 60, 45, 30, 20, 15, 10, 5))
"""Time limits that people write."""
GIB = 1_024


@dataclass(frozen=True, slots=True)
class Concession:
    """The job as it would be, and what that is in words that follow `would start now …`."""

    sentence: str
    spec: JobSpec


Scale = Sequence[Concession]
"""Concessions of one kind, the smallest first: each asks for less than the one before."""


def concessions(spec: JobSpec, placer: Placer) -> Iterator[Scale]:
    """From what costs a job nothing but comfort to what makes it smaller."""
    for each in (*_ties(spec), *_terms(spec), *_kinds(spec, placer)):
        yield (each,)
    for name, count in spec.licences.items():
        yield _licences(spec, name, count)
    yield _spreads(spec, placer)
    yield _memory(spec, placer)
    yield _cpus(spec, placer)
    yield _scratch(spec, placer)
    yield _limits(spec)
    yield _nodes(spec)
    yield _gpus(spec)


def undemanding(spec: JobSpec) -> Concession | None:
    """The job without all that it says about how and beside whom it lies; None if it says nothing."""
    wish = _wish(spec.gpu, numa="", nvlink="", least_mib=0, compute="")
    company = tuple(each for each in spec.company if each.prefer)
    plain_spec = replace(
        spec, gpu=wish, topology=None, company=company, affinity=(), selector={}, gpu_models=()
    )
    lying = "without anything it demands of nodes and GPUs but their number"
    return None if plain_spec == spec else Concession(lying, plain_spec)


def _wish(wish: GpuWish | None, **changes: Any) -> GpuWish | None:
    """A wish with these changes; none if nothing is left of it."""
    found = replace(wish or GpuWish(), **changes)
    return None if found == GpuWish() else found


def _ties(spec: JobSpec) -> Iterator[Concession]:
    """How GPUs and nodes are to lie to each other."""
    wish, topology = spec.gpu or GpuWish(), spec.topology
    if wish.numa == REQUIRE:
        yield Concession(
            "if its GPUs need not be at one NUMA node", replace(spec, gpu=_wish(wish, numa=PREFER))
        )
    if wish.nvlink == REQUIRE:
        yield Concession(
            "if its GPUs need not be linked by NVLink", replace(spec, gpu=_wish(wish, nvlink=PREFER))
        )
    if topology is not None and not topology.prefer:
        better = replace(spec, topology=replace(topology, prefer=True))
        yield Concession(f"if its nodes need not lie in {plain(str(topology))}", better)


def _terms(spec: JobSpec) -> Iterator[Concession]:
    """What it demands of nodes, and of other jobs on them, one by one."""
    for at, company in enumerate(spec.company):
        if not company.prefer:
            rest = (*spec.company[:at], *spec.company[at + 1 :])
            yield Concession(f"if it need not run {plain(str(company))}", replace(spec, company=rest))
    for at, term in enumerate(spec.affinity):
        terms = (*spec.affinity[:at], *spec.affinity[at + 1 :])
        yield Concession(f"if nodes need not have {plain(str(term))}", replace(spec, affinity=terms))
    for key, value in spec.selector.items():
        pairs = {other: each for other, each in spec.selector.items() if other != key}
        yield Concession(f"if nodes need not have {plain(f'{key}={value}')}", replace(spec, selector=pairs))


def _kinds(spec: JobSpec, placer: Placer) -> Iterator[Concession]:
    """Which GPUs will do."""
    if spec.gpu_models:
        for model in sorted({*placer.nodes.columns.models} - {*spec.gpu_models}):
            also = replace(spec, gpu_models=(*spec.gpu_models, model))
            yield Concession(f"on {plain(model)}, too", also)
    if spec.gpu is not None and spec.gpu.least_mib:
        some = f"on GPUs with less than {memory(spec.gpu.least_mib)}, too"
        yield Concession(some, replace(spec, gpu=_wish(spec.gpu, least_mib=0)))
    if spec.gpu is not None and spec.gpu.compute:
        older = f"on GPUs older than compute capability {plain(spec.gpu.compute)}, too"
        yield Concession(older, replace(spec, gpu=_wish(spec.gpu, compute="")))


def _licences(spec: JobSpec, name: str, asked: int) -> Scale:
    """Fewer of one licence."""
    return [
        Concession(
            f"with {count} of licence {name} instead of {asked}",
            replace(spec, licences={**spec.licences, name: count}),
        )
        for count in _down(asked, 1)
    ]


def _spreads(spec: JobSpec, placer: Placer) -> Scale:
    """As many GPUs, on more nodes."""
    shape = placer.shape(ask_of(spec))
    if shape is None or shape.part.gpus < 2 or spec.tasks_per_node > 1:
        return ()
    gpus, nodes = int(spec.gpus), shape.nodes
    counts = [count for count in range(nodes + 1, gpus + 1) if gpus % count == 0][:MOST_STEPS]
    return [
        Concession(
            f"on {counted(count, 'node')} with {_gpus_told(spec, gpus / count)} each instead of "
            f"{counted(nodes, 'node')}",
            replace(spec, nodes=count),
        )
        for count in counts
    ]


def _memory(spec: JobSpec, placer: Placer) -> Scale:
    free = _free(replace(spec, memory_mib=1), placer, placer.nodes.columns.memory_free)
    return [
        Concession(
            f"with {memory(mib)} of memory instead of {memory(spec.memory_mib)}",
            replace(spec, memory_mib=mib),
        )
        for mib in _less(spec.memory_mib, free, GIB)
    ]


def _cpus(spec: JobSpec, placer: Placer) -> Scale:
    free = _free(replace(spec, cpu_milli=1), placer, placer.nodes.columns.cpu_free)
    return [
        Concession(
            f"with {counted(milli / 1000, 'CPU')} instead of {spec.cpu_milli / 1000:g}",
            replace(spec, cpu_milli=milli),
        )
        for milli in _less(spec.cpu_milli, free, 1_000)
    ]


def _scratch(spec: JobSpec, placer: Placer) -> Scale:
    if not spec.scratch_mib:
        return ()
    free = _free(replace(spec, scratch_mib=0), placer, placer.nodes.columns.scratch_free)
    return [
        Concession(
            f"with {memory(mib)} of scratch instead of {memory(spec.scratch_mib)}",
            replace(spec, scratch_mib=mib),
        )
        for mib in _less(spec.scratch_mib, free, GIB)
    ]


def _free(spec: JobSpec, placer: Placer, column: np.ndarray[Any, Any]) -> int:
    """How much as many nodes as it needs can give of this, if the job fits there in all else; 0 if none."""
    shape = placer.shape(ask_of(spec))
    if shape is None:
        return 0
    fits: Bools = placer.ranking(shape.part).fits
    most = np.sort(column[fits])[::-1]
    return int(most[shape.nodes - 1]) if len(most) >= shape.nodes else 0


def _less(asked: int, free: int, unit: int) -> list[int]:
    """Amounts below what is asked, the greatest first: what there is, and even parts of what is asked."""
    amounts = {free, *(asked * part // 8 for part in range(1, 8))}
    return sorted({_even(each, unit) for each in amounts if 0 < each < asked}, reverse=True)


def _even(amount: int, unit: int) -> int:
    return amount // unit * unit or amount


def _limits(spec: JobSpec) -> Scale:
    asked = spec.time_limit_s
    was = "none" if asked is None else duration(asked)
    return [
        Concession(
            f"with a time limit of {duration(limit)} instead of {was}", replace(spec, time_limit_s=limit)
        )
        for limit in map(float, LIMITS_S)
        if asked is None or limit < asked
    ]


def _nodes(spec: JobSpec) -> Scale:
    """Fewer nodes that each give as much."""
    nodes = spec.nodes or 1
    fewer = _down(nodes, 1)
    each, least = spec.gpus / nodes, spec.gang.min_nodes
    return [
        Concession(
            f"on {counted(count, 'node')} instead of {nodes}"
            + (f", with {_gpus_told(spec, each * count)} in all" if each else ""),
            replace(
                spec,
                nodes=count,
                gpus=each * count,
                gang=spec.gang if least is None else replace(spec.gang, min_nodes=min(least, count)),
            ),
        )
        for count in fewer
    ]


def _gpus(spec: JobSpec) -> Scale:
    """Fewer GPUs on as many nodes."""
    return [
        Concession(
            f"with {_gpus_told(spec, count)} instead of {gpus_text(spec.gpus)}",
            replace(spec, gpus=float(count)),
        )
        for count in _down(int(spec.gpus), spec.nodes or 1)
    ]


def _down(asked: int, unit: int) -> list[int]:
    """Multiples of a unit below what is asked, down to the unit, some left out if they are many."""
    steps = range(asked // unit - 1, 0, -1)
    stride = -(-len(steps) // MOST_STEPS) or 1
    return [each * unit for each in steps[::stride]]


def _gpus_told(spec: JobSpec, number: float) -> str:
    return counted(number, "MIG instance" if spec.gpu is not None and spec.gpu.mig else "GPU")
