"""Routes of the monthly report, and of the report on the wait targets of queues."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

from controller.api.handlers.service.known_names import need_tenants
from controller.api.handlers.service.money import GIB_HOUR_MIB_S, HOUR_MS, bill_of
from controller.api.handlers.service.reports import accounted_window
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.accounting.hours import QueueFigures
from controller.core.accounting.reports import waste
from controller.core.accounting.wait_histogram import Waits, quantile
from controller.core.state.state import State
from controller.store.billed_usage import BilledTime
from wire.api.service.reports import ModelUse, MonthReport, MonthRow, SlaReport, SlaRow

BY = ("project", "user", "queue")


async def show(call: Call) -> MonthReport:
    """Show the usage, the money, the waits and the idle GPUs of one month by project, user or queue."""
    daemon = call.daemon
    month, since, until = _month(call.query["month"], daemon.config.scheduler.time_zone, daemon.now())
    by = call.query["by"][0] if call.query["by"] else BY[0]
    only = {name: call.query[name] for name in BY if call.query[name]}
    async with daemon.report_turns.turn(call.caller.user):
        await daemon.settled()
        running = daemon.usage.running_rows(daemon.now())
        times, jobs = await daemon.report(partial(daemon.store.billed, by, since, until, only, running))
    state = daemon.state
    off_queue = _off_queue(state, since, until)
    waits = {} if "queue" in only and by != "queue" else _waits(call, by, only, since, until)
    by_name: defaultdict[str, list[BilledTime]] = defaultdict(list)
    for each in times:
        by_name[each.name].append(each)
    rows = [_row(state, name, count, by_name[name], waits.get(name)) for name, count in jobs.items()]
    if by == "user" and not only:
        rows = _with_off_queue(rows, off_queue)
    if not rows:
        await need_tenants(call, only)
    rows.sort(key=lambda each: (-each.gpu_ms, each.name))
    gpu_ms = sum(each.gpu_ms for each in rows)
    return MonthReport(
        month,
        since,
        until,
        by,
        state.budgets.rules.currency,
        tuple(rows),
        gpu_ms,
        gpu_ms / HOUR_MS,
        float(bill_of(state, times).money),
        sum(off_queue.values()),
        () if only else waste(daemon.accounting.periods, since, until).lost,
        *_sums(times),
        state.budgets.rules.cpu_price,
        state.budgets.rules.memory_price,
    )


def _month(text: str, zone: str, now: float) -> tuple[str, float, float]:
    """Return the name of the month `text`, such as 2026-11, and its begin and end in the time zone `zone`, in
    seconds since 1970. If `text` is empty, return the present month.
    """
    at = ZoneInfo(zone)
    name = text or f"{datetime.fromtimestamp(now, UTC).astimezone(at):%Y-%m}"
    try:
        begin = datetime.strptime(name, "%Y-%m").replace(tzinfo=at)
    except ValueError:
        raise rejected("invalid", "must be a month such as 2026-11", "month") from None
    if not 1970 < begin.year < 9_000:
        raise rejected("invalid", "must be a month between 1971-01 and 8999-12", "month")
    following = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return name, begin.timestamp(), following.timestamp()


def _row(state: State, name: str, jobs: int, times: Sequence[BilledTime], waits: Waits | None) -> MonthRow:
    bill = bill_of(state, times)
    measured_ms, busy_ms = sum(each.measured_ms for each in times), sum(each.busy_ms for each in times)
    models = tuple(
        ModelUse(
            model,
            gpu_ms,
            gpu_ms / HOUR_MS,
            float(bill.gpus[model] * HOUR_MS / gpu_ms),
            float(bill.gpus[model]),
        )
        for model, gpu_ms in sorted(bill.gpu_ms.items(), key=lambda each: (-each[1], each[0]))
        if gpu_ms
    )
    gpu_ms = sum(bill.gpu_ms.values())
    return MonthRow(
        name,
        jobs,
        gpu_ms,
        gpu_ms / HOUR_MS,
        float(bill.money),
        models,
        round(100 * busy_ms / measured_ms, 1) if measured_ms else None,
        (measured_ms - busy_ms) / HOUR_MS,
        quantile(waits or {}, 0.5),
        quantile(waits or {}, 0.95),
        0.0,
        *_sums(times),
        max((each.memory_peak_mib for each in times), default=0),
        float(bill.cpu),
        float(bill.memory),
    )


def _sums(times: Sequence[BilledTime]) -> tuple[int, float, float, int, float]:
    """Return five sums over `times`: the allocated CPU time in milliseconds and in hours, the used CPU-hours,
    and the allocated memory in MiB-seconds and in GiB-hours.
    """
    cpu_ms, used_ms = sum(each.cpu_ms for each in times), sum(each.cpu_used_ms for each in times)
    memory_mib_s = sum(each.memory_mib_s for each in times)
    return cpu_ms, cpu_ms / HOUR_MS, used_ms / HOUR_MS, memory_mib_s, memory_mib_s / GIB_HOUR_MIB_S


def _waits(call: Call, by: str, only: Mapping[str, str], since: float, until: float) -> dict[str, Waits]:
    _, total = call.daemon.accounting.periods.since(since, until)
    if by == "queue":
        return {} if {*only} - {"queue"} else {name: each.waits for name, each in total.queues.items()}
    found: dict[str, Waits] = {}
    for (project, user), hours in total.tenants.items():
        names = {"project": project, "user": user}
        if all(names[name] == value for name, value in only.items()):
            found.setdefault(names[by], Counter()).update(hours.waits)
    return found


def _off_queue(state: State, since: float, until: float) -> dict[str, float]:
    hours: defaultdict[str, float] = defaultdict(float)
    for use in state.offqueue.within(since, until):
        hours[use.user] += use.gpu_hours(since, until)
    return hours


def _with_off_queue(rows: list[MonthRow], hours: Mapping[str, float]) -> list[MonthRow]:
    known = {each.name: each for each in rows}
    return [
        replace(known.get(name, MonthRow(name, 0, 0, 0.0, 0.0)), off_queue_gpu_hours=hours.get(name, 0.0))
        for name in {*known, *hours}
    ]


async def sla(call: Call) -> SlaReport:
    """Show which fraction of the jobs of each queue started within the wait target of the queue."""
    since, now = await accounted_window(call)
    state = call.daemon.state
    begin, total = call.daemon.accounting.periods.since(since, now)
    targets = {
        name: rule.wait_target_s
        for name, rule in state.quotas.rules.queues.items()
        if rule.wait_target_s is not None
    }
    late: Counter[str] = Counter()
    for lane in state.queue:
        for _, number in lane:
            job = state.jobs[number]
            late[job.spec.queue] += now - job.ready_at > targets.get(job.spec.queue, now)
    rows = (
        _sla_row(name, targets[name], total.queues.get(name) or QueueFigures(), late[name])
        for name in sorted(targets)
    )
    return SlaReport(begin, now, tuple(rows))


def _sla_row(name: str, target_s: float, figures: QueueFigures, late: int) -> SlaRow:
    started = figures.with_target
    return SlaRow(
        name,
        target_s,
        started,
        figures.in_target,
        round(100 * figures.in_target / started, 2) if started else None,
        quantile(figures.waits, 0.5),
        quantile(figures.waits, 0.95),
        late,
    )
