"""Combines several quotas that limit the same jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from controller.engines.contract import ForeignQuota
from wire.cluster.quota import Limits


def tightest(quotas: Iterable[ForeignQuota]) -> ForeignQuota:
    """Return for each amount the limit that leaves the least, with the amount in use of the same quota.
    Amounts without a limit are left out.

    Example: one quota allows 8 GPUs, of which 2 are used, and another 4, of which 1 is used. The limit is 4
    GPUs, and 1 is used.
    """
    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}
    for each in quotas:
        for name in (field.name for field in fields(Limits) if field.name != "gpus_per_model"):
            limit, amount = getattr(each.hard, name), getattr(each.used, name)
            if limit is None:
                continue
            if name not in hard or limit - (amount or 0) < hard[name] - (used[name] or 0):
                hard[name], used[name] = limit, amount
    return ForeignQuota(Limits(**hard), Limits(**used))
