"""Divides GPUs by weighted max-min fairness: between some tenants (`max_min`), or between all users of the
fair-share tree (`entitled_parts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from controller.core.fairshare.share_tree import SharePath

GpuModels = tuple[str, ...]
"""The GPU models that a job accepts; empty if the job accepts any model."""
Demand = Mapping[GpuModels, float]
"""The number of GPUs that a tenant's jobs demand, by accepted GPU models."""


def max_min(capacity: float, demands: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Divide a capacity by weighted max-min fairness and return the part of each tenant. A tenant without a
    weight has the weight 1.

    A tenant whose demand is below its part gets only its demand. The other tenants divide the remaining
    capacity.
    """
    parts: dict[str, float] = {}
    left = dict(demands)
    while left:
        unit = max(0.0, capacity) / sum(weights.get(tenant, 1.0) for tenant in left)
        met = {tenant for tenant, demand in left.items() if demand <= unit * weights.get(tenant, 1.0)}
        if not met:
            return parts | {tenant: unit * weights.get(tenant, 1.0) for tenant in left}
        for tenant in met:
            parts[tenant] = left.pop(tenant)
            capacity -= parts[tenant]
    return parts


def entitled_parts(
    capacity: float,
    demands: Mapping[SharePath, Demand],
    weight: Callable[[SharePath], float],
    gpus_of: Callable[[GpuModels], float],
    most: Callable[[SharePath], float],
) -> dict[SharePath, float]:
    """Return the number of GPUs to which each user is entitled, by the path of the user in the fair-share
    tree.

    Algorithm
    1. Add up the demands of all users below a tenant. Jobs that require a GPU model demand at most all GPUs
       of this model (`gpus_of`), and a tenant demands at most its quota (`most`).
    2. Divide the capacity between the organisations and projects at the top of the tree by max-min fairness.
    3. Divide the part of each tenant between the tenants below it in the same way.

    Invariant: no tenant gets more than its demand, and the parts add up to the capacity or to all demands,
    whichever is less. Cost: O(tenants x depth). `max_min` needs one more round for each group of tenants
    whose demand is met.

    Example: 8 GPUs, projects a and b with weight 1. Users ann and bob of a demand 8 GPUs each, and eve of b
    demands 2. Project b gets 2, a gets 6, and each of ann and bob 3.
    """
    parts: dict[SharePath, float] = {}
    groups: list[tuple[float, int, list[SharePath]]] = [(capacity, 0, sorted(demands))]
    while groups:
        part, depth, paths = groups.pop()
        below: defaultdict[SharePath, list[SharePath]] = defaultdict(list)
        for path in paths:
            below[path[: depth + 1]].append(path)
        wanted = {
            share[-1]: min(most(share), _total((demands[path] for path in members), gpus_of))
            for share, members in below.items()
        }
        found = max_min(part, wanted, {share[-1]: weight(share) for share in below})
        for share, members in below.items():
            if members == [share]:
                parts[share] = found[share[-1]]
            else:
                groups.append((found[share[-1]], depth + 1, members))
    return parts


def _total(demands: Iterable[Demand], gpus_of: Callable[[GpuModels], float]) -> float:
    total: defaultdict[GpuModels, float] = defaultdict(float)
    for demand in demands:
        for models, gpus in demand.items():
            total[models] += gpus
    return sum(min(gpus, gpus_of(models)) for models, gpus in total.items())
