"""Requirements of a job on its GPUs other than their number, and on the topology of its nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Optional

from wire.cluster import mig
from wire.dataclass import dataclass
from wire.job.datasets import dataset_problems
from wire.job.placement.affinity import KEY
from wire.text import memory

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

PREFER, REQUIRE = "prefer", "require"
_COMPUTE = re.compile(r"\d{1,2}\.\d")


@dataclass(frozen=True)
class GpuWish:
    """Requirements on the GPUs of a job. `memory_mib` requests a part of one GPU with this much memory. The
    other fields limit which GPUs the job may get.

    `numa` requests GPUs on one NUMA node, `nvlink` GPUs that are all connected with each other by NVLink.
    Each of the two is empty, "prefer" or "require".
    """

    memory_mib: int = 0
    least_mib: int = 0
    compute: str = ""
    mig: str = ""
    numa: str = ""
    nvlink: str = ""

    @property
    def demands(self) -> bool:
        """Return whether the job requires GPUs that are on one NUMA node or linked by NVLink."""
        return REQUIRE in (self.numa, self.nvlink)

    @property
    def prefers(self) -> bool:
        """Return whether the job prefers GPUs that are on one NUMA node or linked by NVLink."""
        return PREFER in (self.numa, self.nvlink)

    def __str__(self) -> str:
        return ", ".join(
            text
            for text in (
                f"{memory(self.memory_mib)} of GPU memory" if self.memory_mib else "",
                f"at least {memory(self.least_mib)} per GPU" if self.least_mib else "",
                f"compute capability {self.compute} or newer" if self.compute else "",
                f"MIG {self.mig}" if self.mig else "",
                f"NUMA node {self.numa}d" if self.numa else "",
                f"NVLink {self.nvlink}d" if self.nvlink else "",
            )
            if text
        )


@dataclass(frozen=True)
class Topology:
    """Distributes the nodes of a job evenly over `domains` topology domains. A domain is the set of nodes
    with the same value of the node label `label`, such as one rack. If `domains` is None, no two nodes of the
    job may be in the same domain.

    With `prefer` this is a preference and not a requirement.
    """

    label: str
    domains: Optional[int] = 1
    prefer: bool = False

    def split(self, nodes: int) -> Optional[tuple[int, int]]:
        """Return the number of domains, and the number of nodes in each domain. Return None if the nodes
        cannot be divided evenly.
        """
        domains = nodes if self.domains is None else self.domains
        return (domains, nodes // domains) if nodes % domains == 0 else None

    def __str__(self) -> str:
        where = f"{self.label}s" if self.domains != 1 else self.label
        count = {1: "the same", None: "different"}.get(self.domains, str(self.domains))
        return f"{count} {where}" + (" if possible" if self.prefer else "")


def parse_compute_capability(text: str) -> float:
    """Return a compute capability such as "8.0" as a number; 0 if the text is not a compute capability."""
    return float(text) if _COMPUTE.fullmatch(text) else 0.0


def parse_topology(text: str, domains: Optional[int]) -> Topology:
    """Parse a topology such as `rack` or `rack:prefer`. `domains` is the number of topology domains; None
    means a different domain for each node. Raise ValueError for any other text.
    """
    label, _, word = text.partition(":")
    if not KEY.fullmatch(label) or word not in ("", PREFER, REQUIRE):
        raise ValueError(f"cannot read {text!r}; write rack, or rack:prefer")
    return Topology(label, domains, word == PREFER)


def parse_domains(text: str) -> Topology:
    """Parse a topology with its number of domains, such as `rack=2` or `rack=2:prefer`. Raise ValueError
    for any other text.
    """
    label, _, rest = text.partition("=")
    number, _, word = rest.partition(":")
    if not number.isascii() or not number.isdigit() or not 0 < int(number[:6]) <= 10_000:
        raise ValueError(f"cannot read {text!r}; write rack=2, or rack=2:prefer")
    return parse_topology(f"{label}:{word}" if word else label, int(number))


def parse_require_or_prefer(text: str) -> str:
    """Return the text unchanged: `require` or `prefer`. Raise ValueError for any other text."""
    if text not in (PREFER, REQUIRE):
        raise ValueError(f"{text!r} is neither require nor prefer")
    return text


def gpu_requirement_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate data sets, GPU requirements and topology. Yield each mistake as (field name, sentence for
    users).
    """
    wish, topology = spec.gpu, spec.topology
    yield from dataset_problems(spec.datasets)
    if wish is not None:
        yield from _gpu_problems(spec, wish)
    if topology is not None:
        if not KEY.fullmatch(topology.label):
            yield "topology.label", f"{topology.label!r} is not the name of a label"
        if topology.domains is not None and not 1 <= topology.domains <= 10_000:
            yield "topology.domains", "must lie between 1 and 10000"
        elif spec.nodes is not None and topology.split(spec.nodes) is None:
            yield "topology.domains", f"{spec.nodes} nodes cannot be divided evenly over {topology.domains}"


def _gpu_problems(spec: JobSpec, wish: GpuWish) -> Iterator[tuple[str, str]]:
    for name, mib in (("memory_mib", wish.memory_mib), ("least_mib", wish.least_mib)):
        if not 0 <= mib <= 1 << 30:
            yield f"gpu.{name}", "must be positive"
    if wish.memory_mib and spec.gpus:
        yield (
            "gpu.memory_mib",
            "requests a part of one GPU by its memory and cannot be set together with gpus",
        )
    if wish.memory_mib and wish.mig:
        yield "gpu.memory_mib", "a MIG instance cannot be shared"
    if wish.mig and not mig.is_profile(wish.mig):
        yield "gpu.mig", f"{wish.mig!r} is not a MIG profile such as 1g.5gb"
    if wish.mig and not spec.gpus >= 1:
        yield "gpu.mig", "needs a whole number of instances in gpus"
    if wish.compute and not _COMPUTE.fullmatch(wish.compute):
        yield "gpu.compute", f"{wish.compute!r} is not a compute capability such as 8.0"
    for name, word in (("numa", wish.numa), ("nvlink", wish.nvlink)):
        if word not in ("", PREFER, REQUIRE):
            yield f"gpu.{name}", f"{word!r} is neither require nor prefer"
    if not (spec.gpus or wish.memory_mib) and wish != GpuWish():
        yield "gpu", "has requirements on GPUs, but the job requests no GPU: set gpus"
