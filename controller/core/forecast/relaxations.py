"""Relaxations: copies of a job's spec with fewer constraints or smaller amounts. smallest_change.py tries the
copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from controller.core.cluster.node_table import Bools
from controller.core.model.request import request_of
from controller.core.placement.placer import Placer
from wire.job.placement.affinity import Effect, Toleration, untolerated_taint
from wire.job.placement.gpu_requirements import PREFER, REQUIRE, GpuWish
from wire.job.spec import JobSpec, gpus_text
from wire.text import counted, duration, memory, printable

MOST_STEPS = 16
"""At most this many smaller numbers of nodes, of GPUs or of a licence are tried."""
GIB = 1_024


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A changed spec, and a text about the change. The text is the end of the sentence `it would start now
    …`.
    """

    sentence: str
    spec: JobSpec


RelaxationScale = Sequence[Relaxation]
"""Relaxations (changed specs) of one kind, the smallest change first. Each relaxation requests less than the
relaxation before it.
"""


def relaxations(
    spec: JobSpec, user: str, placer: Placer, limits: Sequence[float] = ()
) -> Iterator[RelaxationScale]:
    """Yield lists of relaxations: specs that require less than the user's spec. A list contains relaxations
    of one kind, such as less memory, the smallest change first.

    Lists that remove a constraint come before lists that reduce an amount. `limits` contains the time limits
    to try, in seconds.
    """
    for each in (*_ties(spec), *_terms(spec), *_kinds(spec, placer), *_tolerations(spec, placer)):
        yield (each,)
    for name, count in spec.licences.items():
        yield _licences(spec, name, count)
    yield _spreads(spec, placer)
    yield _memory(spec, user, placer)
    yield _cpus(spec, user, placer)
    yield _scratch(spec, user, placer)
    yield _limits(spec, limits)
    yield _nodes(spec)
    yield _gpus(spec)


def without_constraints(spec: JobSpec) -> Relaxation | None:
    """Return the spec without its constraints on nodes, GPUs and other jobs. Return None if the spec has no
    such constraints.
    """
    wish = _wish(spec.gpu, numa="", nvlink="", least_mib=0, compute="")
    company = tuple(each for each in spec.company if each.prefer)
    plain_spec = replace(
        spec, gpu=wish, topology=None, company=company, affinity=(), selector={}, gpu_models=()
    )
    sentence = "without any requirement on nodes and GPUs except their number"
    return None if plain_spec == spec else Relaxation(sentence, plain_spec)


def _wish(wish: GpuWish | None, **changes: Any) -> GpuWish | None:
    found = replace(wish or GpuWish(), **changes)
    return None if found == GpuWish() else found


def _ties(spec: JobSpec) -> Iterator[Relaxation]:
    """Yield specs in which one requirement (NUMA node, NVLink or topology) becomes a preference."""
    wish, topology = spec.gpu or GpuWish(), spec.topology
    if wish.numa == REQUIRE:
        yield Relaxation(
            "if its GPUs need not be at one NUMA node", replace(spec, gpu=_wish(wish, numa=PREFER))
        )
    if wish.nvlink == REQUIRE:
        yield Relaxation(
            "if its GPUs need not be linked by NVLink", replace(spec, gpu=_wish(wish, nvlink=PREFER))
        )
    if topology is not None and not topology.prefer:
        better = replace(spec, topology=replace(topology, prefer=True))
        yield Relaxation(f"if its nodes need not lie in {printable(str(topology))}", better)


def _terms(spec: JobSpec) -> Iterator[Relaxation]:
    """Yield specs without one of the constraints on node labels or on other jobs."""
    for at, company in enumerate(spec.company):
        if not company.prefer:
            rest = (*spec.company[:at], *spec.company[at + 1 :])
            yield Relaxation(f"if it need not run {printable(str(company))}", replace(spec, company=rest))
    for at, term in enumerate(spec.affinity):
        terms = (*spec.affinity[:at], *spec.affinity[at + 1 :])
        yield Relaxation(f"if nodes need not have {printable(str(term))}", replace(spec, affinity=terms))
    for key, value in spec.selector.items():
        pairs = {other: each for other, each in spec.selector.items() if other != key}
        yield Relaxation(
            f"if nodes need not have {printable(f'{key}={value}')}", replace(spec, selector=pairs)
        )


def _tolerations(spec: JobSpec, placer: Placer) -> Iterator[Relaxation]:
    """Yield specs with a toleration for one of the taints that keep the job off nodes."""
    hard = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
    taints = {taint for each in placer.nodes.columns.taints for taint in each if taint.effect in hard}
    for taint in sorted(taints, key=str):
        if untolerated_taint([taint], spec.tolerations, *hard) is not None:
            bears = Toleration(taint.key, taint.value or None)
            borne = replace(spec, tolerations=(*spec.tolerations, bears))
            yield Relaxation(f"if it tolerated the taint {printable(str(bears))}", borne)


def _kinds(spec: JobSpec, placer: Placer) -> Iterator[Relaxation]:
    """Yield specs that accept other GPUs as well: one more GPU model, less GPU memory, or an older compute
    capability.
    """
    if spec.gpu_models:
        for model in sorted({*placer.nodes.columns.models} - {*spec.gpu_models}):
            also = replace(spec, gpu_models=(*spec.gpu_models, model))
            yield Relaxation(f"if it may also run on {printable(model)}", also)
    if spec.gpu is not None and spec.gpu.least_mib:
        some = f"if it may also run on GPUs with less than {memory(spec.gpu.least_mib)}"
        yield Relaxation(some, replace(spec, gpu=_wish(spec.gpu, least_mib=0)))
    if spec.gpu is not None and spec.gpu.compute:
        older = f"if it may also run on GPUs below compute capability {printable(spec.gpu.compute)}"
        yield Relaxation(older, replace(spec, gpu=_wish(spec.gpu, compute="")))


def _licences(spec: JobSpec, name: str, asked: int) -> RelaxationScale:
    """Return specs with fewer units of one licence, the highest number first."""
    return [
        Relaxation(
            f"with {count} of licence {name} instead of {asked}",
            replace(spec, licences={**spec.licences, name: count}),
        )
        for count in _down(asked, 1)
    ]


def _spreads(spec: JobSpec, placer: Placer) -> RelaxationScale:
    """Return specs with the same number of GPUs on more nodes, the fewest nodes first."""
    shape = placer.shape(request_of(spec))
    if shape is None or shape.part.gpus < 2 or spec.tasks_per_node > 1:
        return ()
    gpus, nodes = int(spec.gpus), shape.nodes
    counts = [count for count in range(nodes + 1, gpus + 1) if gpus % count == 0][:MOST_STEPS]
    return [
        Relaxation(
            f"on {counted(count, 'node')} with {_gpu_count_text(spec, gpus / count)} each instead of "
            f"{counted(nodes, 'node')}",
            replace(spec, nodes=count),
        )
        for count in counts
    ]


def _memory(spec: JobSpec, user: str, placer: Placer) -> RelaxationScale:
    free = _free(replace(spec, memory_mib=1), user, placer, placer.nodes.columns.memory_free)
    return [
        Relaxation(
            f"with {memory(mib)} of memory instead of {memory(spec.memory_mib)}",
            replace(spec, memory_mib=mib),
        )
        for mib in _less(spec.memory_mib, free, GIB)
    ]


def _cpus(spec: JobSpec, user: str, placer: Placer) -> RelaxationScale:
    free = _free(replace(spec, cpu_milli=1), user, placer, placer.nodes.columns.cpu_free)
    return [
        Relaxation(
            f"with {counted(milli / 1000, 'CPU')} instead of {spec.cpu_milli / 1000:g}",
            replace(spec, cpu_milli=milli),
        )
        for milli in _less(spec.cpu_milli, free, 1_000)
    ]


def _scratch(spec: JobSpec, user: str, placer: Placer) -> RelaxationScale:
    if not spec.scratch_mib:
        return ()
    free = _free(replace(spec, scratch_mib=0), user, placer, placer.nodes.columns.scratch_free)
    return [
        Relaxation(
            f"with {memory(mib)} of scratch instead of {memory(spec.scratch_mib)}",
            replace(spec, scratch_mib=mib),
        )
        for mib in _less(spec.scratch_mib, free, GIB)
    ]


def _free(spec: JobSpec, user: str, placer: Placer, column: np.ndarray[Any, Any]) -> int:
    """Return the amount of one resource that the job could get now on each of its nodes; 0 if the job fits on
    too few nodes.

    `spec` is the job's spec without this resource. `column` contains, for each node, how much of the resource
    is free.
    """
    shape = placer.shape(request_of(spec, user))
    if shape is None:
        return 0
    fits: Bools = placer.ranking(shape.part).fits
    most = np.sort(column[fits])[::-1]
    return int(most[shape.nodes - 1]) if len(most) >= shape.nodes else 0


def _less(asked: int, free: int, unit: int) -> list[int]:
    """Return smaller amounts to try in place of `asked`, the largest first. The amounts are the free amount,
    and 7/8, 6/8 … 1/8 of `asked`, in multiples of `unit`.
    """
    amounts = {free, *(asked * part // 8 for part in range(1, 8))}
    return sorted({_even(each, unit) for each in amounts if 0 < each < asked}, reverse=True)


def _even(amount: int, unit: int) -> int:
    return amount // unit * unit or amount


def _limits(spec: JobSpec, limits: Sequence[float]) -> RelaxationScale:
    asked = spec.time_limit_s
    was = "none" if asked is None else duration(asked)
    return [
        Relaxation(
            f"with a time limit of {duration(limit)} instead of {was}", replace(spec, time_limit_s=limit)
        )
        for limit in limits
        if asked is None or limit < asked
    ]


def _nodes(spec: JobSpec) -> RelaxationScale:
    """Return specs with fewer nodes and the same request per node, the most nodes first."""
    nodes = spec.nodes or 1
    fewer = _down(nodes, 1)
    each, least = spec.gpus / nodes, spec.gang.min_nodes
    return [
        Relaxation(
            f"on {counted(count, 'node')} instead of {nodes}"
            + (f", with {_gpu_count_text(spec, each * count)} in all" if each else ""),
            replace(
                spec,
                nodes=count,
                gpus=each * count,
                gang=spec.gang if least is None else replace(spec.gang, min_nodes=min(least, count)),
            ),
        )
        for count in fewer
    ]


def _gpus(spec: JobSpec) -> RelaxationScale:
    """Return specs with fewer GPUs on the same number of nodes, the most GPUs first."""
    return [
        Relaxation(
            f"with {_gpu_count_text(spec, count)} instead of {gpus_text(spec.gpus)}",
            replace(spec, gpus=float(count)),
        )
        for count in _down(int(spec.gpus), spec.nodes or 1)
    ]


def _down(asked: int, unit: int) -> list[int]:
    """Return multiples of `unit` below `asked`, the largest first. If there are more than MOST_STEPS, leave
    out some at regular intervals.
    """
    steps = range(asked // unit - 1, 0, -1)
    stride = -(-len(steps) // MOST_STEPS) or 1
    return [each * unit for each in steps[::stride]]


def _gpu_count_text(spec: JobSpec, number: float) -> str:
    return counted(number, "MIG instance" if spec.gpu is not None and spec.gpu.mig else "GPU")
