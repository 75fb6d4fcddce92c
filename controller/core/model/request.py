"""Resource requests: the part of a job's spec that decides which nodes can run the job.

Jobs with equal requests form one request class. A node that can run one job of a request class can run all
jobs of the class.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from wire.job.placement.affinity import Preference, Term, Toleration
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import JobTerm
from wire.job.spec import JobSpec, gpus_text
from wire.names import ENGINE_LABEL, WHOLE_GPU
from wire.text import counted, memory

EMPTY_SPEC = JobSpec(command=())
_CONSTRAINTS = attrgetter(
    *("gpu_models", "gpu", "topology", "datasets", "licences", "labels", "company", "selector"),
    *("affinity", "preferences", "tolerations", "gang", "image", "scratch_mib"),
    *("cpu_limit_milli", "memory_limit_mib"),
)
_NO_CONSTRAINTS = _CONSTRAINTS(EMPTY_SPEC)
"""The values of the constraint fields in a spec without constraints."""
LicenceCounts = tuple[tuple[str, int], ...]
"""(name of a licence, number requested) of each requested licence, sorted by name."""


class _Hashed:
    """The base of frozen dataclasses that are used as dictionary keys. The hash is computed once, when the
    object is made.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __post_init__(self) -> None:
        values = tuple(getattr(self, each.name) for each in fields(self) if each.compare)  # type: ignore[arg-type]
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class PerNodeRequest(_Hashed):
    """The resources that a job requests on one node, and its constraints on the node. `gpus` is a number of
    whole GPUs. A job that requests a part of one GPU has `gpus` 0; `share` is the part in thousandths.
    """

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
    """True: the job runs in a container image, so the node needs a container runtime."""
    user: str = ""
    """The user of the job if the request is `social`; otherwise empty. The user is needed because
    anti-affinity excludes only jobs of the same user.
    """

    social: bool = field(init=False, repr=False, compare=False)
    """True if the request has job labels or job affinity. The suitable nodes then depend on the jobs that run
    on the nodes.
    """
    wants_gpus: bool = field(init=False, repr=False, compare=False)
    """True if the job requests whole GPUs, a part of a GPU, or GPU memory."""

    def __post_init__(self) -> None:
        _Hashed.__post_init__(self)
        gpus = self.gpus or self.share or (self.gpu is not None and self.gpu.memory_mib)
        object.__setattr__(self, "wants_gpus", bool(gpus))
        object.__setattr__(self, "social", bool(self.labels or self.company))

    def __str__(self) -> str:
        gpus = counted(self.gpus, "GPU") if self.gpus else ""
        if self.share:
            gpus = f"{gpus_text(self.share / WHOLE_GPU)} of a GPU"
        parts = [gpus, str(self.gpu or ""), counted(self.cpu_milli / 1000, "CPU"), memory(self.memory_mib)]
        if self.scratch_mib:
            parts.append(f"{memory(self.scratch_mib)} of scratch")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class ResourceRequest(_Hashed):
    """The resource request of a whole job: `nodes` nodes, and on each of these nodes the resources in `part`.
    If `nodes` is None, `part.gpus` is the number of GPUs of the whole job, and the job gets the fewest nodes
    that have enough GPUs.

    `topology` names a node label, such as `rack`, and the distribution of the job's nodes over its values,
    for example all nodes in one rack.
    """

    __hash__ = _Hashed.__hash__

    part: PerNodeRequest
    nodes: int | None = 1
    topology: Topology | None = None
    least: int | None = None
    """The least number of nodes with which the job may start. None: the job needs the full number of nodes.
    """
    licences: LicenceCounts = ()
    """The licences that the whole job requests."""
    beyond: tuple[int, int] = (0, 0)
    """By how much the CPU limit and the memory limit of the job on each node exceed its requests: (1/1000
    CPU, MiB). Quotas also count these amounts.
    """

    one_model: bool = False
    """True: all GPUs of the job must be of one model."""

    def split(self, nodes: int) -> PerNodeRequest | None:
        """Return the request for each node if the job runs on this many nodes. Return None if the job's GPUs
        cannot be divided evenly among the nodes.
        """
        if nodes == 1 or self.nodes is not None:
            return self.part
        if self.part.gpus % nodes:
            return None
        return replace(self.part, gpus=self.part.gpus // nodes)


def without_relaxed(spec: JobSpec, from_queue: Collection[str] = ()) -> JobSpec:
    """Return the spec without the constraints that its field `relax` names. Keep the node labels that the
    job's queue requires; `from_queue` contains the keys of these labels.
    """
    plain: dict[str, Any] = {name: getattr(EMPTY_SPEC, name) for name in spec.relax}
    if "selector" in plain:
        plain["selector"] = {key: value for key, value in spec.selector.items() if key in from_queue}
    return replace(spec, **plain)


def request_of(spec: JobSpec, user: str = "") -> ResourceRequest:
    """Return the resource request of a job with this spec, submitted by `user`. Equal requests are one
    object, so that requests can be compared quickly.
    """
    if _CONSTRAINTS(spec) == _NO_CONSTRAINTS:
        # Use only the amounts of resources as the key of the cache, because most jobs have no constraints.
        return _ask_for(spec.cpu_milli, spec.memory_mib, spec.gpus, spec.nodes)
    return _ask_of(spec, user)


@lru_cache(maxsize=65_536)
def _ask_for(cpu_milli: int, memory_mib: int, gpus: float, nodes: int | None) -> ResourceRequest:
    asked = JobSpec(command=(), cpu_milli=cpu_milli, memory_mib=memory_mib, gpus=gpus, nodes=nodes)
    return _ask_of(asked, "")


def _ask_of(spec: JobSpec, user: str) -> ResourceRequest:
    gpus, nodes = spec.gpus, spec.nodes
    if nodes is None and gpus <= 1:
        nodes = 1
    whole = int(gpus) if gpus >= 1 else 0
    part = _one(
        PerNodeRequest(
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
            tolerations=_tolerations(spec),
            scratch_mib=spec.scratch_mib,
            contained=bool(spec.image),
            user=user if spec.labels or spec.company else "",
        )
    )
    return _interned(
        part,
        nodes,
        None if nodes == 1 else spec.topology,
        spec.gang.min_nodes if spec.gang.min_nodes != nodes else None,
        tuple(sorted(spec.licences.items())),
        (_excess(spec.cpu_limit_milli, spec.cpu_milli), _excess(spec.memory_limit_mib, spec.memory_mib)),
        part.wants_gpus and nodes != 1 and not spec.gang.mixed_models,
    )


def _excess(limit: int | None, request: int) -> int:
    return 0 if limit is None else max(0, limit - request)


@lru_cache(maxsize=65_536)
def _one(part: PerNodeRequest) -> PerNodeRequest:
    """Return one object for all equal requests, so that dictionary lookups are fast."""
    return part


@lru_cache(maxsize=65_536)
def _interned(
    part: PerNodeRequest,
    nodes: int | None,
    topology: Topology | None,
    least: int | None,
    licences: LicenceCounts,
    beyond: tuple[int, int],
    one_model: bool,
) -> ResourceRequest:
    return ResourceRequest(part, nodes, topology, least, licences, beyond, one_model)


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """The default CPU and memory for jobs that request none, from `[jobs]` or a queue of scheduler.toml. None
    means no default.
    """

    cpu_milli: int | None = None
    memory_mib: int | None = None
    cpu_milli_per_gpu: int | None = None
    memory_mib_per_gpu: int | None = None


NO_JOB_DEFAULTS = JobDefaults()


def _tolerations(spec: JobSpec) -> tuple[Toleration, ...]:
    """Return the tolerations of a job. A job that selects an execution engine also tolerates the taint of the
    engine's nodes.
    """
    engine = spec.selector.get(ENGINE_LABEL)
    if engine is None:
        return spec.tolerations
    return (*spec.tolerations, Toleration(ENGINE_LABEL, value=engine))
