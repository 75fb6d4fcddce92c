"""Default CPU and memory for jobs that request no CPU or no memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of
from controller.core.model.request import PerNodeRequest, ResourceRequest, request_of
from wire.job.spec import JobSpec, with_values
from wire.names import WHOLE_GPU

if TYPE_CHECKING:
    from controller.core.placement.placer import Placer
    from controller.core.quota.quota_config import QuotaConfig

BEST_EFFORT = {"cpu_milli": 100, "memory_mib": 64}
"""The CPU and memory of a best-effort job. These amounts are above zero, because an unlimited number of
best-effort jobs could otherwise start on one node.
"""

MAX_CACHED = 4_096
FIXED_SIZES = {"cpu_milli": 1_000, "memory_mib": 1_024}
LEFT_PART = 10
"""A divisor: default sizes leave one tenth of a node's CPUs and memory for jobs without GPUs. Without this
part, a GPU job with default sizes would not fit on a node that runs even one small job without GPUs.
"""
PROVISIONAL = "provisional: no node that could hold the job is known yet"
SIZE_FIELDS = frozenset(
    ("gpus", "nodes", "gpu", "gpu_models", "queue", "profile", "selector", "affinity", "image", "best_effort")
) | frozenset(FIXED_SIZES)
"""The fields of a spec on which the defaults depend. If a user changes one of these fields, the defaults are
computed again.
"""


@dataclass(frozen=True, slots=True)
class _Share:
    """The default CPU and memory of a request: the part of a node that is proportional to the requested GPUs
    or CPUs.

    Nodes differ, so the smallest part among the nodes that could hold the request is used. `cpu_milli` comes
    from the node `cpu_node`, and `memory_mib` from the node `memory_node`. `most_cpu_milli` and
    `most_memory_mib` are the whole CPU and memory of the largest of these nodes.
    """

    cpu_milli: int
    cpu_node: str
    memory_mib: int
    memory_node: str
    most_cpu_milli: int
    most_memory_mib: int


class DefaultSizes:
    """Fills in the CPU and memory that a job does not request, when the job is submitted or changed.

    Algorithm for an amount of CPU or memory that is 0 in the spec
    1. A best-effort job gets the fixed small sizes of BEST_EFFORT.
    2. Any other job gets the default of its queue or, if its queue has none, of `[jobs]`. For a job with GPUs
       the default is an amount per GPU, for a job without GPUs an amount per node. The job gets at most as
       much as the largest node that could hold the job has.
    3. If there is no such default, a job with GPUs gets a part of nine tenths of the node's CPUs (whole CPUs)
       and memory: its GPUs divided by all GPUs of the node. A job without GPUs gets one CPU. Its part of the
       node's memory is its CPUs divided by all CPUs of the node. If nodes differ, the smallest result among
       the nodes that could hold the job is used.
    4. If the cluster has no node that could hold the job, the value is provisional. When a suitable node
       joins, `settle_defaults` replaces the value.

    Invariant: with a default of rule 3, a job fits on every node that could hold the job without the default.
    With a default of rule 2, the job fits on at least one of these nodes. Cost: O(nodes) for the first job
    with a request after nodes changed. Each further job with the same request costs one dictionary lookup and
    one copy of the spec.

    Example: a node has 8 GPUs, 128 CPUs and 2,000 GiB. `--gpus 2` gets 28 CPUs and 450 GiB. With a second
    node of 4 GPUs, 16 CPUs and 60 GiB, the same job gets 7 CPUs and 27 GiB, and fits on both nodes. With
    `--gpu-model` for the GPUs of the first node, the job gets 28 CPUs and 450 GiB again.
    """

    def __init__(self, rules: QuotaConfig) -> None:
        self._rules = rules
        self._layout = -1
        """The value of `Nodes.layout_version` for which `_sizes` and `_last` are valid."""
        self._sizes: dict[tuple[Hashable, ...], Mapping[str, Any]] = {}
        self._last: tuple[JobSpec, Placer, JobSpec] | None = None
        """The last submitted spec, its placer, and the same spec with CPU and memory filled in. All replicas
        of a service are submitted with one spec, so the filled spec is computed once for all replicas.
        """
        self._provisional: set[int] | None = None

    def fill(self, spec: JobSpec, placer: Placer) -> JobSpec:
        """Return the spec with CPU and memory filled in. Its field `by_default` then has the source of each
        default, such as the queue.
        """
        if spec.cpu_milli and spec.memory_mib:
            return spec
        if placer.nodes.layout_version != self._layout:
            self._layout, self._last = placer.nodes.layout_version, None
            self._sizes.clear()
        if self._last is None or self._last[0] is not spec or self._last[1] is not placer:
            sizes = self._sizes_of(spec, placer)
            if spec.by_default:
                sizes = {**sizes, "by_default": {**spec.by_default, **sizes["by_default"]}}
            self._last = spec, placer, with_values(spec, sizes)
        return self._last[2]

    def _sizes_of(self, spec: JobSpec, placer: Placer) -> Mapping[str, Any]:
        """Return values for the missing CPU and memory of the spec, and for `by_default`, which names the
        source of each value. The result is cached for all jobs with an equal request.
        """
        limits = spec.cpu_limit_milli, spec.memory_limit_mib
        asked = placer, request_of(spec), spec.queue, spec.best_effort, limits
        found = self._sizes.get(asked)
        if found is None:
            if len(self._sizes) >= MAX_CACHED:
                self._sizes.clear()
            found = self._sizes[asked] = self._find_sizes(spec, placer)
        return found

    def _find_sizes(self, spec: JobSpec, placer: Placer) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        notes: dict[str, str] = {}
        for field in FIXED_SIZES:
            if not getattr(spec, field):
                found[field], notes[field] = self._value(field, with_values(spec, found), placer)
        for name, limit in (("cpu_milli", spec.cpu_limit_milli), ("memory_mib", spec.memory_limit_mib)):
            if name in found and limit is not None:
                # If the job sets a limit for its CPU or memory, reduce the default to the limit, because a
                # request may not be above its limit.
                found[name] = min(found[name], limit)
        return {**found, "by_default": notes}

    def refill(self, spec: JobSpec, placer: Placer, changed: frozenset[str]) -> JobSpec:
        """Return the spec after a user changed the fields named in `changed`. If the default CPU and memory
        depend on one of these fields, compute the defaults again.
        """
        kept = {name: source for name, source in spec.by_default.items() if name not in changed}
        cleared: dict[str, Any] = dict.fromkeys(kept, 0) if changed & SIZE_FIELDS else {}
        notes = {name: source for name, source in kept.items() if name not in cleared}
        return self.fill(with_values(spec, {**cleared, "by_default": notes}), placer)

    def note(self, job: int, spec: JobSpec) -> None:
        """Store the job's id if a default size of the job is provisional. The size is computed again when a
        node joins that could hold the job.
        """
        if self._provisional is not None and has_provisional_size(spec):
            self._provisional.add(job)

    def waiting(self, jobs: Callable[[], Any]) -> list[int]:
        """Return the ids of the jobs with provisional default sizes, in ascending order. The first call finds
        these jobs among all jobs, which `jobs()` returns.
        """
        if self._provisional is None:
            self._provisional = {job.id for job in jobs() if has_provisional_size(job.spec)}
        return sorted(self._provisional)

    def settled(self, job: int) -> None:
        """Record that the default sizes of a job are no longer provisional."""
        if self._provisional is not None:
            self._provisional.discard(job)

    def _value(self, field: str, spec: JobSpec, placer: Placer) -> tuple[int, str]:
        if spec.best_effort:
            return BEST_EFFORT[field], "best-effort"
        if self._rules.defaults is None:
            # Return a fixed amount, because only simulations and tests have no configured defaults.
            return FIXED_SIZES[field], "fixed"
        sizes = {"cpu_milli": spec.cpu_milli or 1, "memory_mib": spec.memory_mib or 1}
        probe = request_of(with_values(spec, sizes))
        gpu_milli, share = self._share(probe, placer)
        configured = self._configured(field, spec, gpu_milli)
        if configured is not None:
            value, source = configured
            most = value if share is None else getattr(share, f"most_{field}")
            return max(1, min(value, most)), source
        if share is None:
            return FIXED_SIZES[field], PROVISIONAL
        per = "GPU" if gpu_milli else "CPU"
        if field == "memory_mib":
            return share.memory_mib, f"share per {per} of node {share.memory_node}"
        if gpu_milli:
            return share.cpu_milli, f"share per GPU of node {share.cpu_node}"
        return min(FIXED_SIZES[field], share.most_cpu_milli), "one CPU"

    def _configured(self, field: str, spec: JobSpec, gpu_milli: int) -> tuple[int, str] | None:
        """Return the default of the job's queue or of `[jobs]`, and its source; None if neither has a
        default.
        """
        rule = self._rules.queues.get(spec.queue)
        tables = [(rule.defaults, f"queue {spec.queue}")] if rule is not None else []
        if self._rules.defaults is not None:
            tables.append((self._rules.defaults, "[jobs]"))
        for defaults, source in tables:
            value = getattr(defaults, f"{field}_per_gpu" if gpu_milli else field)
            if value is not None:
                return (value * gpu_milli // WHOLE_GPU if gpu_milli else value), source
        return None

    def _share(self, probe: ResourceRequest, placer: Placer) -> tuple[int, _Share | None]:
        """Return the thousandths of GPUs that the request takes on one node, and its default CPU and memory.
        The defaults are a proportional part of a node, or None if no known node could hold the job.

        `probe` is the request with a small amount in place of a missing CPU or memory.
        """
        shape = placer.shape(probe)
        part = probe.part if shape is None else shape.part
        gpu_milli = gpu_needs_of(part, placer.nodes.columns).max_milli if part.wants_gpus else 0
        if shape is None:
            return gpu_milli or int(part.wants_gpus), None
        return gpu_milli, self._find_share(part, placer, gpu_milli)

    def _find_share(self, part: PerNodeRequest, placer: Placer, gpu_milli: int) -> _Share | None:
        nodes, columns = placer.nodes, placer.nodes.columns
        rows = placer.possible(part).nonzero()[0]
        if not len(rows):
            # If taints exclude the job from every node, use all nodes, because an operator can remove the
            # taints.
            rows = columns.cpu_total.nonzero()[0]
        least_cpu: tuple[int, str] | None = None
        least_memory: tuple[int, str] | None = None
        # Use only the first node, by name, of each group of nodes with equal hardware, because the other
        # nodes of the group give the same result.
        totals = np.stack((columns.cpu_total[rows], columns.memory_total[rows], columns.gpu_count[rows]))
        order = np.lexsort(totals)
        differs = (np.diff(totals[:, order]) != 0).any(axis=0)
        for first in order[np.concatenate(([True], differs))].tolist() if len(rows) else ():
            cpus, mib, gpus = totals[:, first].tolist()
            name = nodes.rows[rows[first]].name
            wanted, whole = gpu_milli, gpus * WHOLE_GPU
            if gpu_milli:
                cpus, mib = cpus - cpus // LEFT_PART, mib - mib // LEFT_PART
            else:
                wanted, whole = part.cpu_milli, cpus
            if not whole:
                continue
            cpu = max(1, cpus * min(wanted, whole) // whole)
            if cpu > 1_000:  # Round down to whole cores, because jobs are bound to whole cores.
                cpu -= cpu % 1_000
            memory = max(1, mib * min(wanted, whole) // whole)
            if memory > 1_024:  # Round down to whole GiB, so that the value is easy to read.
                memory -= memory % 1_024
            least_cpu = min(least_cpu or (cpu, name), (cpu, name))
            least_memory = min(least_memory or (memory, name), (memory, name))
        if least_cpu is None or least_memory is None:
            return None
        most_cpu, most_memory = int(columns.cpu_total[rows].max()), int(columns.memory_total[rows].max())
        return _Share(*least_cpu, *least_memory, most_cpu, most_memory)


def has_provisional_size(spec: JobSpec) -> bool:
    """Return whether a default of the spec was computed while the cluster had no node that could hold the
    job.
    """
    return bool(spec.by_default) and PROVISIONAL in spec.by_default.values()
