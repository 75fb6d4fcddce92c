"""What a job asks of the cluster, reduced to what decides where it can run.

Jobs with the same Ask form one class: what is worked out for one holds for all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from wire.affinity import Preference, Term, Toleration
from wire.company import JobTerm
from wire.gpuwish import GpuWish, Topology
from wire.spec import JobSpec, gpus_text
from wire.text import counted, memory
from wire.words import WHOLE_GPU

NO_WISHES = JobSpec(command=())
_WISHES = attrgetter(
    *("gpu_models", "gpu", "topology", "datasets", "licences", "labels", "company", "selector"),
    *("affinity", "preferences", "tolerations", "gang", "image", "scratch_mib"),
)
_NONE = _WISHES(NO_WISHES)
"""All that a class goes by but for amounts."""
Wanted = tuple[tuple[str, int], ...]
"""Licences: (name, how many), by name."""


class _Hashed:
    """A frozen dataclass that works out its hash once: classes are looked up all the time."""

    __slots__ = ("_hash",)
    _hash: int

    def __post_init__(self) -> None:
        values = tuple(getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Part(_Hashed):
    """What one node must give: `gpus` whole ones, or `share` thousandths of a single one."""

    __hash__ = _Hashed.__hash__

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    share: int = 0
    models: tuple[str, ...] = ()
    gpu: GpuWish | None = None
    datasets: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    company: tuple[JobTerm, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    preferences: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    scratch_mib: int = 0
    contained: bool = False
    """It runs in an image, and needs something that can run images."""

    @property
    def social(self) -> bool:
        """Does it matter to others where this runs, or to this where others do?"""
        return bool(self.labels or self.company)

    @property
    def wants_gpus(self) -> bool:
        """Whole ones, or a share of one, however it is told."""
        return bool(self.gpus or self.share or (self.gpu is not None and self.gpu.memory_mib))

    def __str__(self) -> str:
        gpus = counted(self.gpus, "GPU") if self.gpus else ""
        if self.share:
            gpus = f"{gpus_text(self.share / WHOLE_GPU)} of a GPU"
        parts = [gpus, str(self.gpu or ""), counted(self.cpu_milli / 1000, "CPU"), memory(self.memory_mib)]
        if self.scratch_mib:
            parts.append(f"{memory(self.scratch_mib)} of scratch")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Ask(_Hashed):
    """One part on each of `nodes` different nodes; None: as few nodes as the part's GPUs need.

    `topology` says how the nodes lie to each other.
    """

    __hash__ = _Hashed.__hash__

    part: Part
    nodes: int | None = 1
    topology: Topology | None = None
    least: int | None = None
    """With so few nodes it may start all the same; None: only with all of them."""
    licences: Wanted = ()
    """What it holds wherever it runs."""

    def split(self, nodes: int) -> Part | None:
        """The part when spread evenly over so many nodes; None if the GPUs do not divide."""
        if nodes == 1 or self.nodes is not None:
            return self.part
        if self.part.gpus % nodes:
            return None
        return replace(self.part, gpus=self.part.gpus // nodes)


def relaxed(spec: JobSpec, from_queue: Collection[str] = ()) -> JobSpec:
    """The job as it is when it does without what it names for that; the labels of its queue stay."""
    plain: dict[str, Any] = {name: getattr(NO_WISHES, name) for name in spec.relax}
    if "selector" in plain:
        plain["selector"] = {key: value for key, value in spec.selector.items() if key in from_queue}
    return replace(spec, **plain)


def ask_of(spec: JobSpec) -> Ask:
    """The class a spec belongs to."""
    if _WISHES(spec) == _NONE:  # most jobs only say how much
        return _ask_for(spec.cpu_milli, spec.memory_mib, spec.gpus, spec.nodes)
    return _ask_of(spec)


@lru_cache(maxsize=65_536)
def _ask_for(cpu_milli: int, memory_mib: int, gpus: float, nodes: int | None) -> Ask:
    asked = JobSpec(command=(), cpu_milli=cpu_milli, memory_mib=memory_mib, gpus=gpus, nodes=nodes)
    return _ask_of(asked)


def _ask_of(spec: JobSpec) -> Ask:
    gpus, nodes = spec.gpus, spec.nodes
    if nodes is None and gpus <= 1:
        nodes = 1
    whole = int(gpus) if gpus >= 1 else 0
    part = _one(
        Part(
            cpu_milli=spec.cpu_milli,
            memory_mib=spec.memory_mib,
            gpus=whole // (nodes or 1),
            share=round(gpus * WHOLE_GPU) if gpus < 1 else 0,
            models=tuple(sorted(set(spec.gpu_models))),
            gpu=spec.gpu,
            datasets=tuple(sorted(set(spec.datasets))),
            labels=tuple(sorted(spec.labels.items())),
            company=spec.company,
            selector=tuple(sorted(spec.selector.items())),
            affinity=spec.affinity,
            preferences=spec.preferences,
            tolerations=spec.tolerations,
            scratch_mib=spec.scratch_mib,
            contained=bool(spec.image),
        )
    )
    return _interned(
        part,
        nodes,
        None if nodes == 1 else spec.topology,
        spec.gang.min_nodes if spec.gang.min_nodes != nodes else None,
        tuple(sorted(spec.licences.items())),
    )


@lru_cache(maxsize=65_536)
def _one(part: Part) -> Part:
    """Equal parts are one and the same, so that looking one up compares nothing."""
    return part


@lru_cache(maxsize=65_536)
def _interned(
    part: Part, nodes: int | None, topology: Topology | None, least: int | None, licences: Wanted
) -> Ask:
    return Ask(part, nodes, topology, least, licences)
