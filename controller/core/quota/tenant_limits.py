"""Converts a quota to the limits of one tenant on each resource. Percentages become numbers of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.core.cluster.gpus.gpu_counts import GpuCounts
from controller.core.quota.limit_exceeded import GPU_HOUR
from controller.core.quota.usage_counters import CPU, FIRST_MODEL, GPU, GPU_TIME, MEMORY, QUEUED, RUNNING
from wire.cluster.quota import UNLIMITED, GpuLimit, Limits, Quota
from wire.names import WHOLE_GPU

AmountLimit = tuple[int, int]
"""(index of a resource in an Amount, limit on this resource). An Amount is a list with one number for each
resource.
"""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of one user, project or queue. Each resource is identified by its index in an Amount (a list
    of numbers).
    """

    hard: tuple[AmountLimit, ...] = ()
    soft: tuple[AmountLimit, ...] = ()
    lent: Mapping[int, int] = field(default_factory=dict)
    """The amount that the tenant may borrow above its hard limit, by resource."""
    shares: Mapping[int, str] = field(default_factory=dict)
    """A text such as "50 % of 48" for each hard limit that is set as a percentage of the cluster's GPUs, by
    resource.
    """
    soft_shares: Mapping[int, str] = field(default_factory=dict)
    """A text such as "50 % of 48" for each soft limit that is set as a percentage of the cluster's GPUs, by
    resource.
    """


def tenant_limits(quota: Quota, models: Sequence[str], gpus: GpuCounts) -> TenantLimits:
    """Return the limits of a tenant with this quota. `models` are the GPU models on which any quota has a
    limit. The percentages of the quota are already converted to numbers (`with_gpu_numbers`).
    """
    hard, soft, borrow = (amount_limits(each, models) for each in (quota.hard, quota.soft, quota.borrow))
    shares, soft_shares = (_share_texts(each, models, gpus) for each in (quota.hard, quota.soft))
    return TenantLimits(hard, soft, dict(borrow), shares, soft_shares)


def with_gpu_numbers(limits: Limits, gpus: GpuCounts) -> Limits:
    """Return the limits with each percentage converted to the present number of GPUs in the cluster."""
    percent, models = limits.gpus_percent, limits.gpus_per_model
    number = limits.gpus if percent is None else percent * gpus.total / 100
    of_models = {
        model: each
        if each.percent is None
        else GpuLimit(each.percent * gpus.of_model(model) / 100, each.percent)
        for model, each in models.items()
    }
    return replace(limits, gpus=number, gpus_per_model=of_models)


def amount_limits(limits: Limits, models: Sequence[str]) -> tuple[AmountLimit, ...]:
    """Return the limit on each limited resource. The resource FIRST_MODEL + i is GPUs of models[i]."""
    given = (
        (CPU, limits.cpu_milli, 1),
        (MEMORY, limits.memory_mib, 1),
        (GPU, limits.gpus, WHOLE_GPU),
        (RUNNING, limits.running, 1),
        (QUEUED, limits.queued, 1),
        (GPU_TIME, limits.gpu_hours, GPU_HOUR),
    )
    of_all = tuple(
        (kind, round(value * unit)) for kind, value, unit in given if value is not None and value != UNLIMITED
    )
    kinds = _kinds_of_models(models)
    return of_all + tuple(
        (kinds[model.casefold()], round(each.gpus * WHOLE_GPU))
        for model, each in sorted(limits.gpus_per_model.items())
        if each.gpus is not None and each.gpus != UNLIMITED
    )


def _share_texts(limits: Limits, models: Sequence[str], gpus: GpuCounts) -> dict[int, str]:
    """Return a text such as "50 % of 48" for each limit in percent, by resource."""
    kinds, percent = _kinds_of_models(models), limits.gpus_percent
    found = {} if percent is None else {GPU: f"{percent:g} % of {gpus.total}"}
    for model, each in limits.gpus_per_model.items():
        if each.percent is not None:
            found[kinds[model.casefold()]] = f"{each.percent:g} % of {gpus.of_model(model)}"
    return found


def _kinds_of_models(models: Sequence[str]) -> dict[str, int]:
    return {model.casefold(): FIRST_MODEL + place for place, model in enumerate(models)}
