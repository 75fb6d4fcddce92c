"""Computes the figures of a run from its recorded jobs and samples. benchmarks/lab/command.py prints them
beside their limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from benchmarks.lab.entitlement import Demand, entitled_hours
from benchmarks.lab.history import RecordedJob
from benchmarks.lab.workload import DEADLINE, HOUR_S, NOTEBOOK, WEEK_H
from controller.core.accounting.idle_causes import WASTE, IdleCause
from controller.sim.job_results import quantile
from wire.names import JobState

STEP_S = 0.5 * HOUR_S
"""Seconds between two samples. Entitlements are computed for steps of the same length."""
OFTEN = 0.5
"""Deviations are judged only for tenants that have a waiting job in at least this fraction of the samples.

The fraction is a half, and not one, because a tenant may begin to wait only when the backlog has grown. A
tenant whose demand is less than its share has no deviation in any case, because the tenant is entitled to its
demand only.
"""
GANG_NODES = 3
"""Only gangs with at least this number of nodes are measured."""
PATIENCE_H = 72.0
"""A gang that was submitted in this number of hours before the end of the run, and still waits, does not
count as a gang that never started.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the simulated cluster: the number of idle GPUs by cause, and the owners of the waiting
    jobs.
    """

    idle: Mapping[str, float]
    waiting: frozenset[tuple[str, str]]
    """The tenant and user of each waiting job. Jobs with the priority SCAVENGER do not count."""


@dataclass(frozen=True, slots=True)
class Record:
    """The jobs and samples recorded in a run. `starts_at` and `ends_at` are in seconds since 1970."""

    jobs: Sequence[RecordedJob]
    samples: Sequence[Sample]
    starts_at: float
    ends_at: float
    gpus: int
    gpus_of: Mapping[tuple[str, ...], float]
    """The number of GPUs of the cluster that each tuple of accepted GPU models allows."""
    weights: Mapping[str, float]
    """The weights of projects, and of users as `project/user`."""

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours that the cluster has in the measured time."""
        return self.gpus * (self.ends_at - self.starts_at) / HOUR_S


@dataclass(frozen=True, slots=True)
class Deviation:
    """The difference between what a tenant got and what it was entitled to (`points`), in percentage points;
    negative if the tenant got less.
    """

    tenant: str
    points: float
    got: float
    entitled: float
    """What the tenant is entitled to, in percent of the same GPU-hours as `got`."""
    waits: float
    """The fraction (0 to 1) of the samples in which the tenant had a waiting job."""


def worst(deviations: Iterable[Deviation]) -> Deviation | None:
    """Return the largest deviation, positive or negative, of the tenants that have a waiting job in at least
    the fraction OFTEN of the samples; None if there is no such tenant.
    """
    waiting = [each for each in deviations if each.waits >= OFTEN]
    return max(waiting, key=lambda each: abs(each.points), default=None)


def project_deviations(record: Record) -> list[Deviation]:
    """Compare the GPU-hours of each project with its entitlement, in percent of all GPU-hours of the cluster.

    Jobs with the priority SCAVENGER count neither as demand nor as GPU-hours of the project. An idle GPU does
    not count as capacity while its node is drained or in maintenance.
    """
    jobs, entitled = _entitled_projects(record)
    got = _used_hours((job.tenant, job) for job in jobs)
    waits = Counter(tenant for sample in record.samples for tenant in {pair[0] for pair in sample.waiting})
    return [
        _deviation(
            tenant, got[tenant], sum(entitled[tenant]), record.gpu_hours, waits[tenant] / len(record.samples)
        )
        for tenant in sorted(entitled)
    ]


def worst_week(record: Record) -> Deviation | None:
    """Return the largest deviation of a project in a single week, in percent of the GPU-hours of the week;
    None if the run is shorter than a week.

    A project that takes the cluster for some days has a large deviation in this week, although it may get a
    fair part of the whole run.
    """
    jobs, entitled = _entitled_projects(record)
    week = int(WEEK_H * HOUR_S / STEP_S)
    found: list[Deviation] = []
    for tenant, hours in sorted(entitled.items()):
        used = _used_by_step(record, [job for job in jobs if job.tenant == tenant])
        for begin in range(0, len(hours) - week + 1, week):
            got = sum(used[begin : begin + week]) * STEP_S / HOUR_S
            samples = record.samples[begin : begin + week]
            waits = sum(tenant in {pair[0] for pair in sample.waiting} for sample in samples)
            due = sum(hours[begin : begin + week])
            found.append(_deviation(tenant, got, due, record.gpus * WEEK_H, waits / week))
    return max(found, key=lambda each: abs(each.points), default=None)


def _entitled_projects(record: Record) -> tuple[list[RecordedJob], dict[str, list[float]]]:
    """Return all jobs except those with the priority SCAVENGER, and the GPU-hours to which each project is
    entitled in each step, by project.
    """
    closed = (IdleCause.DRAINED.value, IdleCause.MAINTENANCE.value)
    out = [sum(sample.idle.get(cause, 0.0) for cause in closed) for sample in record.samples]
    capacity = [record.gpus - lost for lost in out]
    jobs = [job for job in record.jobs if not job.scavenges]
    demands = _demands(record, jobs)
    return jobs, entitled_hours(demands, record.weights, capacity, STEP_S, record.gpus_of)


def user_deviations(record: Record) -> list[Deviation]:
    """Compare the GPU-hours of each user of a project with the part of the project's GPU-hours to which the
    user is entitled, in percent of the project's GPU-hours.

    Leave out projects in which fewer than two users have a waiting job in at least the fraction OFTEN of the
    samples.
    """
    waits = Counter(pair for sample in record.samples for pair in sample.waiting)
    often = [tenant for (tenant, _), count in waits.items() if count >= OFTEN * len(record.samples)]
    found: list[Deviation] = []
    for tenant in sorted(name for name, users in Counter(often).items() if users > 1):
        jobs = [job for job in record.jobs if job.tenant == tenant and not job.scavenges]
        users = sorted({job.user for job in jobs})
        got = _used_hours((job.user, job) for job in jobs)
        weights = {user: record.weights.get(f"{tenant}/{user}", 1.0) for user in users}
        demands = _demands(record, jobs, by_user=True)
        entitled = entitled_hours(demands, weights, _used_by_step(record, jobs), STEP_S, record.gpus_of)
        total = sum(got.values()) or 1.0
        found += [
            _deviation(
                f"{tenant}/{user}",
                got[user],
                sum(entitled.get(user, ())),
                total,
                waits[tenant, user] / len(record.samples),
            )
            for user in users
        ]
    return found


def _deviation(tenant: str, got: float, entitled: float, total: float, waits: float) -> Deviation:
    """Return how much more or less the tenant got than it was entitled to. `got`, `entitled` and `total` are
    in GPU-hours; the figures of the result are in percent of `total`. `waits` is the fraction of the samples
    in which the tenant had a waiting job.
    """
    return Deviation(tenant, 100 * (got - entitled) / total, 100 * got / total, 100 * entitled / total, waits)


def _demands(record: Record, jobs: Iterable[RecordedJob], *, by_user: bool = False) -> Iterator[Demand]:
    for job in jobs:
        tenant = job.user if by_user else job.tenant
        submit_s = job.submit_s - record.starts_at
        yield Demand(tenant, submit_s, job.gpus, job.gpus * job.demand_s, job.spec.gpu_models)


def _used_hours(jobs: Iterable[tuple[str, RecordedJob]]) -> Counter[str]:
    """Return the used GPU-hours by name. Each pair has a job, and the name under which its GPU-hours count,
    such as a project.
    """
    used: Counter[str] = Counter()
    for name, job in jobs:
        used[name] += job.gpus * sum(end - start for start, end in job.runs) / HOUR_S  # type: ignore[assignment]
    return used


def _used_by_step(record: Record, jobs: Iterable[RecordedJob]) -> list[float]:
    """Return the mean number of GPUs that the jobs hold in each step."""
    used = [0.0] * ceil((record.ends_at - record.starts_at) / STEP_S)
    for job in jobs:
        for start, end in job.runs:
            at = start - record.starts_at
            last = min(len(used) - 1, int((end - record.starts_at) / STEP_S))
            for step in range(int(at / STEP_S), last + 1):
                begin, until = max(at, step * STEP_S), min(end - record.starts_at, (step + 1) * STEP_S)
                used[step] += job.gpus * max(0.0, until - begin) / STEP_S
    return used


def idle_hours(record: Record) -> dict[str, float]:
    """Return the idle GPU-hours by cause, the largest first."""
    total: Counter[str] = Counter()
    for sample in record.samples:
        for cause, gpus in sample.idle.items():
            total[cause] += gpus * STEP_S / HOUR_S  # type: ignore[assignment]
    return dict(total.most_common())


def wasted_percent(record: Record) -> float:
    """Return the GPU-hours in which a GPU was idle although a waiting job would have fit and delayed no other
    job, in percent of all GPU-hours.
    """
    return (
        100 * sum(hours for cause, hours in idle_hours(record).items() if cause in WASTE) / record.gpu_hours
    )


def used_percent(record: Record) -> float:
    """Return the GPU-hours that jobs held, in percent of all GPU-hours."""
    return 100 * sum(_used_hours(("", job) for job in record.jobs).values()) / record.gpu_hours


def lost_percent(record: Record) -> float:
    """Return the GPU-hours of work that preemptions destroyed, in percent of all GPU-hours."""
    return 100 * sum(job.lost_gpu_hours for job in record.jobs) / record.gpu_hours


def gangs_never_started(record: Record) -> tuple[int, int]:
    """Return the number of gangs of three or more nodes that never started, and the number of all such gangs.

    Gangs that were submitted in the last PATIENCE_H hours, and still wait at the end, are left out.
    """
    late = record.ends_at - PATIENCE_H * HOUR_S
    gangs = [job for job in record.jobs if job.nodes >= GANG_NODES]
    counted = [job for job in gangs if job.runs or job.end_s is not None or job.submit_s <= late]
    return sum(not job.runs for job in counted), len(counted)


def longest_gang_wait_h(record: Record) -> float:
    """Return the longest time in hours for which a gang of three or more nodes waited for its first start. A
    gang that never started counts until its end or the end of the run.
    """
    return max((job.wait_h(record.ends_at) for job in record.jobs if job.nodes >= GANG_NODES), default=0.0)


def longest_narrow_wait_h(record: Record) -> float:
    """Return the longest wait of a job with at most one GPU, in hours. Jobs with the priority SCAVENGER do
    not count.
    """
    narrow = (job for job in record.jobs if job.gpus <= 1 and not job.scavenges)
    return max((job.wait_h(record.ends_at) for job in narrow), default=0.0)


def deadlines_met(record: Record) -> tuple[int, int]:
    """Return the number of jobs that met their deadline, and the number of all jobs with a deadline (see
    `workload._deadlines`) within the run.
    """
    due = [
        (job, job.spec.deadline_at)
        for job in record.jobs
        if job.spec.name == DEADLINE and job.spec.deadline_at is not None
    ]
    due = [(job, at) for job, at in due if at <= record.ends_at]
    met = sum(job.state is JobState.COMPLETED and (job.end_s or at) <= at for job, at in due)
    return met, len(due)


def interactive_p95_minutes(record: Record) -> float:
    """Return the 95th percentile of the minutes from the submit of a notebook to its start."""
    waits = [60 * job.wait_h(record.ends_at) for job in record.jobs if job.spec.name == NOTEBOOK]
    return quantile(waits, 0.95)
