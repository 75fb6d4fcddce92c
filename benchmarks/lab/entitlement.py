"""Computes what each tenant is entitled to: GPU-hours by weighted max-min fairness over the tenant's demand.

Algorithm of `entitled_hours`
1. Divide the time into steps. In each step, every tenant demands the GPUs of its unfinished jobs. A job
   demands at most its own GPUs, and jobs that require a GPU model together at most the GPUs of this model.
2. Divide the capacity of the step by weighted max-min fairness: a tenant whose demand is less than its part
   gets its demand, and the other tenants divide the remaining GPUs by their weights.
3. Give the tenant's part to its jobs in the order of their submits: subtract the GPU-seconds that each job
   gets from the GPU-seconds that the job still needs.

Invariant: the result depends on the jobs, weights and capacity alone, and not on what the scheduler did. The
accounting of the controller does not have the run times in advance, so `corral report fairness` uses the
demand of the jobs that wait or run at that time (controller/core/accounting/cluster_accounting.py).
Cost: O(jobs + steps x GPUs).

Example: 8 GPUs for one hour, weights a = 1 and b = 1. Tenant a demands 2 GPUs and b 20: a is entitled to 2
GPU-hours and b to 6.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.lab.workload import HOUR_S
from controller.core.accounting.max_min import max_min

_NOTHING_S = 1e-6


@dataclass(slots=True)
class Demand:
    """The demand of one job: the time of its submit in seconds after the start of the run, the GPUs that the
    job requests, and the GPU-seconds that the job still needs.
    """

    tenant: str
    submit_s: float
    gpus: float
    gpu_s: float
    models: tuple[str, ...] = ()


def entitled_hours(
    demands: Iterable[Demand],
    weights: Mapping[str, float],
    capacity: Sequence[float],
    step_s: float,
    gpus_of: Mapping[tuple[str, ...], float],
) -> dict[str, list[float]]:
    """Return the GPU-hours to which each tenant is entitled in each step, by tenant. `capacity` has the
    number of GPUs in each step of `step_s` seconds.

    `gpus_of` has the number of GPUs that each tuple of accepted GPU models allows: {("H100",): 16} if 16 GPUs
    are H100.
    """
    coming = deque(sorted((replace(each) for each in demands), key=lambda each: each.submit_s))
    unfinished: defaultdict[str, deque[Demand]] = defaultdict(deque)
    entitled: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * len(capacity))
    for step, gpus in enumerate(capacity):
        while coming and coming[0].submit_s <= step * step_s:
            unfinished[coming[0].tenant].append(coming.popleft())
        demanded = {
            tenant: sum(use for _, use in _uses(jobs, gpus, step_s, gpus_of))
            for tenant, jobs in unfinished.items()
        }
        for tenant, part in max_min(gpus, demanded, weights).items():
            entitled[tenant][step] = part * step_s / HOUR_S
            _serve(unfinished[tenant], part, step_s, gpus_of)
    return dict(entitled)


def _uses(
    jobs: Iterable[Demand], gpus: float, step_s: float, gpus_of: Mapping[tuple[str, ...], float]
) -> Iterator[tuple[Demand, float]]:
    """Yield the jobs of one tenant that run in one step, in order, each with its mean number of GPUs in the
    step. The tenant has `gpus` GPUs in this step.
    """
    left_of = dict(gpus_of)
    for job in jobs:
        if gpus <= 0:
            return
        left = left_of.get(job.models, gpus)
        use = min(job.gpus, job.gpu_s / step_s, gpus, left)
        left_of[job.models] = left - use
        gpus -= use
        yield job, use


def _serve(jobs: deque[Demand], gpus: float, step_s: float, gpus_of: Mapping[tuple[str, ...], float]) -> None:
    """Let the jobs of one tenant run on `gpus` GPUs for one step: subtract the GPU-seconds that each job
    gets, and remove the finished jobs.
    """
    served = list(_uses(jobs, gpus, step_s, gpus_of))
    for job, use in served:
        jobs.popleft()
        job.gpu_s -= use * step_s
    jobs.extendleft(job for job, _ in reversed(served) if job.gpu_s > _NOTHING_S)
