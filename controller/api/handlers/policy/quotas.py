"""Routes of quotas: list limits with the resources in use, set limits, and remove limits that operators have
set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.api.handlers.policy.queues import phrases_by_queue
from controller.api.handlers.service.known_names import need_tenant
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.api.views.hours import hours_in_force
from controller.config import ConfigRefused
from controller.core.model.inputs import policy_inputs
from controller.core.quota.limit_exceeded import GPU_HOUR
from controller.core.quota.usage_counters import (
    CPU,
    FIRST_MODEL,
    GPU,
    GPU_TIME,
    MEMORY,
    QUEUED,
    RUNNING,
    TenantKey,
)
from wire.api.policy.quotas import QuotaChange, QuotaList, QuotaView
from wire.api.service.config import QuotaSync
from wire.cluster.quota import ANY_NAME, SCOPES, GpuLimit, Limits
from wire.names import WHOLE_GPU
from wire.text import percent

APPLY = "Apply all changes: corral config apply."
CHECK = "'corral config check' lists all mistakes."


async def listing(call: Call) -> QuotaList:
    """List the limits and the usage of every user, project and queue with a quota or with jobs."""
    await call.daemon.settled()
    state = call.daemon.state
    used = [
        key
        for key, account in state.accounts.by_key.items()
        if key[0] in SCOPES and (any(account.used) or account.spent)
    ]
    named = state.quotas.names()
    keys = [*named, *sorted(set(used) - set(named))]
    hours = hours_in_force(state, call.daemon.now())
    return QuotaList(quota_views(call, keys), state.accounts.window_s, call.daemon.seq, hours)


async def change(call: Call, request: QuotaChange) -> QuotaView:
    """Set limits of a user, project or queue. Limits that the request does not name do not change."""
    scope, name = call.path["scope"], call.path["name"]
    await call.daemon.settled()
    await need_tenant(call, scope, name)
    await call.ask(policy_inputs.SetQuota(scope, name, request.quota, call.caller.user))
    return _one(call, (scope, name))


async def show(call: Call) -> QuotaView:
    """Show the limits and the usage of one user, project or queue."""
    scope, name = call.path["scope"], call.path["name"]
    if scope not in SCOPES:
        raise rejected("invalid", f"must be one of {', '.join(SCOPES)}", "scope")
    await call.daemon.settled()
    await need_tenant(call, scope, name)
    return _one(call, (scope, name))


async def edit(call: Call, request: QuotaChange) -> QuotaView:
    """Change limits of a user, project or queue, as the route that ends in `/set` does."""
    return await change(call, request)


async def sync(call: Call) -> QuotaSync:
    """Read the quotas from their source again, and apply the changed quotas.

    The source is the quota provider. The built-in provider `local` reads the table [quota] of scheduler.toml.
    If other tables of the file have changed too, nothing is applied.
    """
    try:
        plan = call.reload.plan()
    except ConfigRefused as refused:
        raise rejected("conflict", str(refused.problems[0]), "scheduler.toml", CHECK) from None
    quotas = tuple(each for each in plan.changes if each.key.partition(".")[0] == "quota")
    if len(quotas) < len(plan.changes):
        others = sorted({each.key.partition(".")[0] for each in plan.changes if each not in quotas})
        message = f"scheduler.toml has other changes too, in {', '.join(f'[{each}]' for each in others)}"
        raise rejected("conflict", message, "scheduler.toml", APPLY)
    if quotas:
        await call.reload.apply(None, call.caller.user)
    provider = call.daemon.engine.pipeline.rules.provider.name
    return QuotaSync(provider, quotas, call.daemon.seq)


async def sync_one(call: Call) -> QuotaView:
    """Read the limits of one project from its execution engine, and apply the changed limits."""
    scope, name = call.path["scope"], call.path["name"]
    foreign = call.daemon.engines.quotas
    if foreign is None or not foreign.has(scope, name):
        message = f"no execution engine sets the quota of {scope} {name!r}"
        raise rejected(
            "not_found",
            message,
            "name",
            "The table [quota] in scheduler.toml names the projects whose limits an engine sets.",
        )
    await call.daemon.settled()
    problem = await foreign.sync(name)
    if problem:
        message = f"the last known limits stay in force: {problem}"
        raise rejected(
            "node_away", message, "name", f"'corral engines test {foreign.source.engine}' tests it."
        )
    return _one(call, (scope, name))


async def unset(call: Call) -> QuotaView:
    """Remove the limits that operators have set. The limits in scheduler.toml apply again."""
    scope, name = call.path["scope"], call.path["name"]
    await call.ask(policy_inputs.UnsetQuota(scope, name, call.caller.user))
    return _one(call, (scope, name))


def quota_views(call: Call, keys: Iterable[TenantKey]) -> tuple[QuotaView, ...]:
    """Return the limits and the usage of these users, projects and queues."""
    policies, unused = phrases_by_queue(call), _unused_gpu_time(call)
    return tuple(_view(call, key, policies, unused) for key in keys)


def _one(call: Call, key: TenantKey) -> QuotaView:
    (view,) = quota_views(call, [key])
    return view


def _unused_gpu_time(call: Call) -> dict[TenantKey, int]:
    state = call.daemon.state
    placed = (state.jobs[number] for _, number in state.releases)
    return state.accounts.unused_gpu_time(placed, call.daemon.now())


def _view(
    call: Call,
    key: TenantKey,
    policies: Mapping[str, tuple[str, ...]],
    unused_gpu_time: Mapping[TenantKey, int],
) -> QuotaView:
    state, now = call.daemon.state, call.daemon.now()
    scope, name = key
    account = state.accounts.by_key.get(key)
    models = state.quotas.models
    amounts = [0] * (FIRST_MODEL + len(models))
    if account is not None and name != ANY_NAME:
        amounts = [account.amount(place, now, state.accounts.window_s) for place in range(len(amounts))]
    unused = unused_gpu_time.get(key, 0)
    quota = state.quotas.quota(key)
    limited = {
        model.casefold() for part in (quota.hard, quota.soft, quota.borrow) for model in part.gpus_per_model
    }
    of_models = {
        model: GpuLimit(amounts[FIRST_MODEL + place] / WHOLE_GPU)
        for place, model in enumerate(models)
        if model.casefold() in limited
    }
    used = Limits(
        amounts[CPU],
        amounts[MEMORY],
        amounts[GPU] / WHOLE_GPU,
        amounts[RUNNING],
        amounts[QUEUED],
        round((amounts[GPU_TIME] - unused) / GPU_HOUR, 6),
        gpus_per_model=of_models,
    )
    policy = policies.get(name, ()) if scope == "queue" else ()
    standing = state.budgets.standing(name, now) if scope == "project" else None
    budget = ""
    if standing is not None:
        budget = f"{percent(100 * standing.part)} of {standing.month}: {standing.text}"
    planned = round(unused / GPU_HOUR, 6)
    foreign = call.daemon.engines.quotas
    source = foreign.text(name, used) if foreign is not None and foreign.has(scope, name) else ""
    edited = key in state.quotas.edits
    return QuotaView(scope, name, quota, used, edited, policy, budget, planned, source)
