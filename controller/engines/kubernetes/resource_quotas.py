"""Reads the limits of a project from the resource quotas of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.engines.contract import ForeignQuota
from controller.engines.kubernetes.quantities import quantity
from wire.cluster.quota import Limits


def quota_of(objects: Iterable[Mapping[str, Any]], gpu_resource: str) -> ForeignQuota:
    """Return the limits of a namespace, and the amounts in use. If several objects limit one resource, take
    the limit that leaves the least. A resource quota with scopes counts only some Pods, so it is left out.

    Example: one object allows 8 GPUs, of which 2 are used, and another 4, of which 1 is used. The limit is 4
    GPUs, and 1 is used.
    """
    names = {
        "cpu_milli": ("requests.cpu", "cpu", "limits.cpu"),
        "memory_mib": ("requests.memory", "memory", "limits.memory"),
        "gpus": (f"requests.{gpu_resource}",),
        "running": ("pods", "count/pods"),
    }
    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}
    for each in objects:
        spec, status = each.get("spec") or {}, each.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        limits, amounts = spec.get("hard") or {}, status.get("used") or {}
        for field, words in names.items():
            for word in words:
                if word not in limits:
                    continue
                limit, amount = (_value(field, found) for found in (limits[word], amounts.get(word, 0)))
                if field not in hard or limit - amount < hard[field] - used[field]:
                    hard[field], used[field] = limit, amount
    return ForeignQuota(Limits(**hard), Limits(**used))


def _value(field: str, text: object) -> float:
    """Return a quantity in the unit of this field of Limits."""
    number = quantity(text)
    if field == "cpu_milli":
        return int(number * 1_000)
    if field == "memory_mib":
        return int(number / (1 << 20))
    return float(number) if field == "gpus" else int(number)
