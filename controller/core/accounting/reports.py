"""Makes the reports on fairness and on idle GPU-hours from the counted GPU-hours.

The API, the metrics and the simulator use these functions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from controller.core.accounting.hours import OTHERS, Period, Periods, Tenant, TenantHours
from controller.core.accounting.idle_causes import CLOSED, WASTE, IdleCause
from controller.core.accounting.wait_histogram import quantile
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.api.service.reports import FairnessReport, FairnessRow, GpuHoursByCause, WasteReport
from wire.names import PRIORITIES
from wire.text import duration, printable

BOUND_POINTS = 3.0
"""The report comments on a tenant (row) if its used GPU-hours differ from its entitled GPU-hours by more than
this. Unit: percent of all GPU-hours of the cluster.
"""
LEAST_GPU_HOURS = 1.0
"""The report does not comment on a difference of fewer GPU-hours than this."""
LONG_WAIT = 10.0
"""The report comments on a tenant if its oldest waiting job has waited longer than this many times the wait
that 90 % of its started jobs did not exceed.
"""
LONG_WAIT_S = 86_400.0
"""The report does not comment on a wait shorter than this. Unit: seconds."""
PROJECT, USER = "project", "user"

_ABOUT = {
    IdleCause.NO_JOB: "no job waits that may start",
    IdleCause.NOT_DUE: "all waiting jobs are held, or wait for a dependency, a time or an array throttle",
    IdleCause.DOWN: "the node is not connected",
    IdleCause.DRAINED: "an operator has drained the node",
    IdleCause.OUT_OF_SERVICE: "the GPU is cordoned, suspect, under test or lost",
    IdleCause.MAINTENANCE: "an operator's reservation admits no jobs",
    IdleCause.RESERVED_FOR_USERS: "an operator's reservation admits only jobs of some users or projects",
    IdleCause.BEFORE_RESERVATION: "waiting jobs could still run when an operator's reservation begins, "
    "or wait for the reservation that they name",
    IdleCause.BACKFILL: "waiting jobs would delay the reserved start of a job ahead in the queue",
    IdleCause.DEADLINE: "waiting jobs would make another job miss its deadline",
    IdleCause.VICTIMS: "kept for a job whose preempted victims are still ending",
    IdleCause.QUOTA: "a quota or a share limit keeps jobs back that fit and delay no other job",
    IdleCause.KEPT_FREE: "a queue keeps GPUs free for its next jobs ([queues.NAME] keep_free_gpus)",
    IdleCause.ORDER: "jobs fit and delay no other job, but the order of the queue keeps them back",
    IdleCause.LICENCE: "waiting jobs lack a licence",
    IdleCause.SCATTERED: "too few free GPUs, CPUs or MiB together on a node for the jobs that wait",
    IdleCause.UNSUITABLE: "no waiting job accepts the node: GPU model, labels, taints or size",
}


def fairness(periods: Periods, state: State, by: str, since: float, now: float) -> FairnessReport:
    """Return a report with one row for each project or user. A row contains the GPU-hours used by the tenant
    and the GPU-hours to which the tenant was entitled. The row with the largest difference between the two is
    first.

    `by` is PROJECT or USER. The report begins with the period (hour or day) that contains `since`.
    """
    begin, total = periods.since(since, now)
    name: Callable[[Tenant], str] = (lambda each: each[0]) if by == PROJECT else (lambda each: each[1])
    figures: defaultdict[str, TenantHours] = defaultdict(TenantHours)
    for tenant, hours in total.tenants.items():
        figures[name(tenant)].add(hours)
    oldest: dict[str, Job] = {}
    for job in _waiting(state):
        key = name((job.spec.project, job.user))
        if key not in oldest or job.ready_at < oldest[key].ready_at:
            oldest[key] = job
    names = figures.keys() | oldest.keys()
    rows = [_row(by, each, figures[each], oldest.get(each), total.capacity, now) for each in names]
    rows.sort(key=lambda each: (-abs(each.points), each.name))
    return FairnessReport(by, begin, now, round(total.capacity, 6), tuple(rows))


def _waiting(state: State) -> Iterator[Job]:
    """Yield the waiting GPU jobs that may start, without jobs of the priority SCAVENGER."""
    numbers = (number for lane in state.queue if lane.ask.part.wants_gpus for _, number in lane)
    jobs = (state.jobs[number] for number in (*numbers, *state.claims))
    return (job for job in jobs if job.spec.priority > PRIORITIES["SCAVENGER"])


def _row(
    by: str, name: str, hours: TenantHours, oldest: Job | None, capacity: float, now: float
) -> FairnessRow:
    points = 100 * (hours.got - hours.entitled) / capacity if capacity else 0.0
    waits_s = 0.0 if oldest is None else max(0.0, now - oldest.ready_at)
    p90 = quantile(hours.waits, 0.9)
    return FairnessRow(
        name,
        round(hours.got, 6),
        round(hours.entitled, 6),
        round(points, 2),
        round(hours.demanded, 6),
        round(hours.scavenged, 6),
        hours.waits.total(),
        quantile(hours.waits, 0.5),
        p90,
        max(hours.longest_wait_s, waits_s),
        "" if oldest is None else oldest.label,
        waits_s,
        _judgement(by, name, hours, points, oldest, waits_s, p90),
    )


def _judgement(
    by: str,
    name: str,
    hours: TenantHours,
    points: float,
    oldest: Job | None,
    waits_s: float,
    p90: float | None,
) -> str:
    """Return a sentence about the tenant of a report row if the row has a large deviation or a long wait;
    otherwise an empty text. `points` is used minus entitled GPU-hours, in percent of all GPU-hours. `p90` is
    the wait that 90 % of the started jobs did not exceed.
    """
    parts = []
    deviation = abs(hours.got - hours.entitled)
    if abs(points) > BOUND_POINTS and deviation >= LEAST_GPU_HOURS and name not in OTHERS:
        than = "less" if points < 0 else "more"
        parts.append(
            f"got {deviation:,.0f} GPU-hours {than} than its weight and demand entitle "
            f"it to, which is {abs(points):.1f} % of the cluster"
        )
    if oldest is not None and waits_s > max(LONG_WAIT_S, LONG_WAIT * (p90 or 0.0)):
        usual = "" if p90 is None else f", while 90 % of its jobs started within {duration(p90)}"
        parts.append(f"job {oldest.label} has waited for {duration(waits_s)}{usual}")
    return f"{by} {printable(name)}: {'; '.join(parts)}" if parts else ""


def waste(periods: Periods, since: float, now: float) -> WasteReport:
    """Return the idle GPU-hours and the GPU-hours of lost work, each by cause, the largest first.

    The report begins with the period (hour or day) that contains `since`.
    """
    begin, total = periods.since(since, now)
    used = sum(each.got + each.scavenged for each in total.tenants.values())
    hours = total.capacity + sum(total.idle.get(cause.value, 0.0) for cause in CLOSED)
    return WasteReport(begin, now, round(hours, 6), round(used, 6), _idle(total, hours), _lost(total, hours))


def _idle(total: Period, hours: float) -> tuple[GpuHoursByCause, ...]:
    found = Counter(total.idle)
    known = {each.value: each for each in IdleCause}
    return tuple(
        GpuHoursByCause(
            cause, round(idle, 6), _percent(idle, hours), _ABOUT[known[cause]], known[cause] in WASTE
        )
        for cause, idle in found.most_common()
        if cause in known
    )


def _lost(total: Period, hours: float) -> tuple[GpuHoursByCause, ...]:
    return tuple(
        GpuHoursByCause(cause, round(lost, 6), _percent(lost, hours), "work that was not saved", True)
        for cause, lost in Counter(total.lost).most_common()
    )


def _percent(hours: float, whole: float) -> float:
    return round(100 * hours / whole, 2) if whole else 0.0
