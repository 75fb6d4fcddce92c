"""Computes the figures that compare scheduling policies, such as the mean wait and the utilisation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.sim.cluster import CapacityChange, Cluster
from controller.sim.job_results import SimulatedJob, mean, quantile


@dataclass(frozen=True)
class Figures:
    """The figures of a run, such as the mean wait, over all jobs that started and ended.

    Times are in seconds. Fractions, such as the utilisation, are between 0 and 1."""

    jobs: int
    avebsld: float
    """Mean bounded slowdown: max(1, (wait + run) / max(run, 10)). All jobs have the same weight."""
    max_bsld: float
    mean_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    mean_flow_s: float
    """Mean time from submit to end."""
    p99_flow_s: float
    max_flow_s: float
    utilisation: float
    """GPU-seconds of the jobs' last attempts, divided by the GPU-seconds of the cluster from the first submit
    to the last end. If the cluster has no GPUs or no job requested one, CPU-seconds are used.
    """
    fragmentation: float
    """Idle fraction of the capacity (in GPU-seconds, as for `utilisation`) during the times at which at least
    one job waited. The idle resources were too few or too scattered for the waiting jobs, or were reserved.
    """
    makespan_s: float
    """Time from the first submit to the last end."""
    fairness: float
    """Jain's fairness index of the users' mean bounded slowdowns. It is 1 if all n users have the same
    slowdown. The more the slowdowns differ, the nearer it is to 1/n."""
    preemptions: int
    """Number of times that a job was queued again after an attempt, for example because another job needed
    its resources or because its node was lost.
    """
    gpu_hours_lost: float = 0.0
    """GPU-hours of work that was lost, because attempts were stopped before they had saved it, and GPU-hours
    of start overhead that jobs spent again after they had been stopped."""
    moves: int = 0
    """Number of moves by rebalancing. In a move, a job is preempted and continues on other nodes."""


def figures_of(
    records: Sequence[SimulatedJob], cluster: Cluster, changes: Sequence[CapacityChange] = ()
) -> Figures:
    """Compute the figures, such as the mean wait and the utilisation, from the results of these jobs."""
    waits = [record.wait_s for record in records]
    flows = [record.wait_s + record.run_s for record in records]
    slowdowns = [record.slowdown for record in records]
    gpus = cluster.gpus if any(record.gpus for record in records) else 0
    capacity = gpus or cluster.cpu_milli
    more = [(each.at_s, each.gpus if gpus else each.cpu_milli) for each in changes]
    held = [record.gpus if gpus else sum(each.cpu_milli for each in record.allocations) for record in records]
    work = sum(amount * record.run_s for record, amount in zip(records, held, strict=True))
    first, last = span(records)
    return Figures(
        jobs=len(records),
        avebsld=mean(slowdowns),
        max_bsld=max(slowdowns, default=0.0),
        mean_wait_s=mean(waits),
        p50_wait_s=quantile(waits, 0.5),
        p95_wait_s=quantile(waits, 0.95),
        mean_flow_s=mean(flows),
        p99_flow_s=quantile(flows, 0.99),
        max_flow_s=max(flows, default=0.0),
        utilisation=_part(work, capacity_time(capacity, more, first, last)),
        fragmentation=_idle_while_wanted(records, held, capacity, more),
        makespan_s=last - first,
        fairness=_jain(records),
        preemptions=sum(record.requeues for record in records),
        gpu_hours_lost=sum(record.lost_gpu_s for record in records) / 3_600,
        moves=sum(record.moves for record in records),
    )


def span(records: Sequence[SimulatedJob]) -> tuple[float, float]:
    """Return the times of the first submit and of the last end; zeros if there are no jobs."""
    if not records:
        return 0.0, 0.0
    return min(record.submit_s for record in records), max(
        record.submit_s + record.wait_s + record.run_s for record in records
    )


def capacity_time(capacity: float, more: Iterable[tuple[float, float]], first: float, last: float) -> float:
    """Return the capacity, such as a number of GPUs, multiplied by the seconds from `first` to `last`.

    `capacity` is the capacity at the time `first`. `more` has its later changes, each as (time, added
    capacity).

    Example: 8 GPUs from 0 s to 100 s, and 8 more from 75 s on, are 1,000 GPU-seconds.
    """
    grown = sum(amount * (last - min(max(at, first), last)) for at, amount in more)
    return capacity * (last - first) + grown


def _idle_while_wanted(
    records: Sequence[SimulatedJob],
    held: Sequence[float],
    capacity: float,
    more: Sequence[tuple[float, float]],
) -> float:
    changes: list[tuple[float, int, float, float]] = [(at, 0, 0.0, amount) for at, amount in more]
    for record, amount in zip(records, held, strict=True):
        start = record.submit_s + record.wait_s
        changes += [
            (record.submit_s, 1, 0.0, 0.0),
            (start, -1, amount, 0.0),
            (start + record.run_s, 0, -amount, 0.0),
        ]
    changes.sort()
    wanted = idle = used = before = 0.0
    waiting = 0
    for at, arrived, taken, grown in changes:
        if waiting:
            wanted += capacity * (at - before)
            idle += max(0.0, capacity - used) * (at - before)
        before, waiting, used, capacity = at, waiting + arrived, used + taken, capacity + grown
    return _part(idle, wanted)


def _jain(records: Sequence[SimulatedJob]) -> float:
    by_user = defaultdict(list)
    for record in records:
        by_user[record.user].append(record.slowdown)
    shares = [mean(slowdowns) for slowdowns in by_user.values()]
    return _part(sum(shares) ** 2, len(shares) * sum(share**2 for share in shares))


def _part(some: float, whole: float) -> float:
    return some / whole if whole else 0.0
