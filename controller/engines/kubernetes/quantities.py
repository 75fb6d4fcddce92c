"""Reads the quantities of Kubernetes, such as `500m` CPUs or `2Gi` of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"([+-]?\d*\.?\d+|[+-]?\d+\.)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?")
_FACTORS = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    **{suffix: Decimal(1_000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{f"{suffix}i": Decimal(1_024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def quantity(text: object) -> Decimal:
    """Return a quantity as a number. Raise ValueError if the text is not a quantity."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity of Kubernetes")
    factor = Decimal(10) ** int(match[3]) if match[3] else _FACTORS[match[2] or ""]
    return Decimal(match[1]) * factor


@dataclass(frozen=True, slots=True)
class PodResources:
    """CPUs, memory and GPUs of a node, or those that a Pod requests."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0

    def __add__(self, other: PodResources) -> PodResources:
        return PodResources(
            self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib, self.gpus + other.gpus
        )

    def minus(self, other: PodResources) -> PodResources:
        """Return these resources minus `other`. An amount that would be negative is 0."""
        return PodResources(
            max(0, self.cpu_milli - other.cpu_milli),
            max(0, self.memory_mib - other.memory_mib),
            max(0, self.gpus - other.gpus),
        )


def resources_of(table: Mapping[str, Any], gpu_resource: str, *, round_up: bool = False) -> PodResources:
    """Return the resources in a table of Kubernetes, such as `status.allocatable` of a node. Round down to
    whole milli-CPUs, MiB and GPUs, or up with `round_up`.
    """

    def whole(name: str, unit: Decimal) -> int:
        value = quantity(table.get(name, 0)) / unit
        return int(-(-value // 1)) if round_up else int(value // 1)

    return PodResources(
        whole("cpu", Decimal("0.001")), whole("memory", Decimal(1 << 20)), whole(gpu_resource, Decimal(1))
    )


def requests_of(pod: Mapping[str, Any], gpu_resource: str) -> PodResources:
    """Return what a Pod requests on its node: the sum over its containers, or the largest init container
    where that is more, and the overhead of its runtime class.
    """

    def sums(containers: Iterable[Mapping[str, Any]]) -> list[PodResources]:
        found = []
        for each in containers:
            table = each.get("resources") or {}
            wanted = {**(table.get("limits") or {}), **(table.get("requests") or {})}
            found.append(resources_of(wanted, gpu_resource, round_up=True))
        return found

    spec = pod.get("spec") or {}
    total = sum(sums(spec.get("containers") or ()), PodResources())
    for each in sums(spec.get("initContainers") or ()):
        total = PodResources(
            max(total.cpu_milli, each.cpu_milli),
            max(total.memory_mib, each.memory_mib),
            max(total.gpus, each.gpus),
        )
    return total + resources_of(spec.get("overhead") or {}, gpu_resource, round_up=True)
