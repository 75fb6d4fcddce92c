"""Routes of usage: GPU-hours and load by user, project, queue or job, and GPUs used outside of jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from controller.api.handlers.service.known_names import need_tenants
from controller.api.handlers.service.money import bill_of
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.model.rows import UsageRow
from controller.store.billed_usage import BilledTime
from controller.store.usage import UsageSum
from wire.api.service.reports import StintList, StintView, UsageList, UsageView

BY = ("user", "project", "queue", "job")
OF = ("user", "project", "queue")
"""The query parameters that select the jobs of a user, project or queue."""
USUAL_S = 7 * 86_400
"""The length in seconds of the time window if `since` is not given (one week)."""


async def show(call: Call) -> UsageList:
    """Show GPU-hours, utilisation, memory, energy and money by user, project, queue or job."""
    since, until = _window(call)
    by = call.query["by"][0] if call.query["by"] else "user"
    daemon = call.daemon
    async with daemon.report_turns.turn(call.caller.user):
        await daemon.settled()
        only = {name: call.query[name] for name in OF if call.query[name]}
        running = daemon.usage.running_rows(until if call.query["until"] is None else daemon.now())
        ask = partial(daemon.store.usage, by, since, until, call.query["limit"], running, only)
        sums, total = await daemon.report(ask)
        if not sums:
            await need_tenants(call, only)
        money = await _money(call, by, since, until, only, running, [each.name for each in sums])
    views = (_view(each, money.get(each.name)) for each in sums)
    return UsageList(tuple(views), since, until, total, daemon.state.budgets.rules.currency)


async def _money(
    call: Call,
    by: str,
    since: float,
    until: float,
    only: Mapping[str, str],
    running: Sequence[UsageRow],
    names: Sequence[str],
) -> dict[str, float]:
    """Return a dict from each user, project, queue or job in `names` to the cost of the selected jobs; empty
    if [budgets] has no prices.
    """
    daemon = call.daemon
    if not names or not daemon.state.budgets.rules.priced:
        return {}
    times, _ = await daemon.report(partial(daemon.store.billed, by, since, until, only, running, names))
    found: defaultdict[str, list[BilledTime]] = defaultdict(list)
    for each in times:
        found[each.name].append(each)
    return {name: float(bill_of(daemon.state, found[name]).money) for name in names}


def _view(each: UsageSum, money: float | None) -> UsageView:
    measured = each.measured_s > 0
    return UsageView(
        each.name,
        each.jobs,
        round(each.gpu_s / 3_600, 4),
        round(100 * each.busy_s / each.measured_s, 1) if measured else None,
        each.p95 if measured else None,
        each.peak_mib,
        round(each.wh, 2),
        round(each.cpu_s / 3_600, 4),
        round(each.cpu_held_s / 3_600, 4),
        round(each.memory_held_s / 1_024 / 3_600, 4),
        each.memory_mib,
        money,
    )


def _window(call: Call) -> tuple[float, float]:
    since, until = call.query["since"], call.query["until"]
    until = call.daemon.now() if until is None else float(until)
    since = max(0.0, until - USUAL_S) if since is None else float(since)
    if since >= until:
        raise rejected("invalid", "must be before until", "since")
    return since, until


async def off_queue(call: Call) -> StintList:
    """List the usage of GPUs by processes outside of jobs: user, GPU, begin and end."""
    since, until = _window(call)
    await call.daemon.settled()
    state = call.daemon.state
    known = {gpu.uuid: gpu for node in state.nodes for gpu in node.facts.gpus}
    views = []
    for stint in state.offqueue.within(since, until):
        hours = stint.gpu_hours(since, until)
        views.append(
            StintView(
                stint.user,
                stint.node,
                known[stint.uuid].index if stint.uuid in known else -1,
                stint.uuid,
                stint.pid,
                stint.command,
                stint.since,
                stint.until,
                round(hours, 4),
                round(hours * stint.rate, 4),
                known[stint.uuid].number if stint.uuid in known else "",
            )
        )
    return StintList(tuple(views), since, until)
