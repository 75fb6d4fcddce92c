"""Reads the limits of a project from the resource quotas of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.engines.contract import ForeignQuota
from controller.engines.kubernetes.quantities import quantity
from controller.engines.tightest_quota import tightest
from wire.cluster.quota import Limits


def quota_of(objects: Iterable[Mapping[str, Any]], gpu_resource: str) -> ForeignQuota:
    """Return the limits of a namespace, and the amounts in use. If several objects limit one resource, take
    the limit that leaves the least. A resource quota with scopes counts only some Pods, so it is left out.
    """
    return tightest(_single_limits(objects, gpu_resource))


def _single_limits(objects: Iterable[Mapping[str, Any]], gpu_resource: str) -> Iterator[ForeignQuota]:
    """Yield each limit of each object as a quota of its own, because an object may limit one amount several
    times, such as `requests.cpu` and `limits.cpu`.
    """
    names = {
        "cpu_milli": ("requests.cpu", "cpu", "limits.cpu"),
        "memory_mib": ("requests.memory", "memory", "limits.memory"),
        "gpus": (f"requests.{gpu_resource}",),
        "running": ("pods", "count/pods"),
    }
    for each in objects:
        spec, status = each.get("spec") or {}, each.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        limits, amounts = spec.get("hard") or {}, status.get("used") or {}
        for field, words in names.items():
            for word in words:
                if word in limits:
                    hard, used = (
                        {field: _value(field, found)} for found in (limits[word], amounts.get(word, 0))
                    )
                    yield ForeignQuota(Limits(**hard), Limits(**used))


def _value(field: str, text: object) -> Any:
    """Return a quantity in the unit of this field of Limits."""
    number = quantity(text)
    if field == "cpu_milli":
        return int(number * 1_000)
    if field == "memory_mib":
        return int(number / (1 << 20))
    return float(number) if field == "gpus" else int(number)
