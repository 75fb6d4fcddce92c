"""Quotas: list what holds and what is used, set, unset."""

from __future__ import annotations

from controller.api.call import Call
from controller.core import inputs
from controller.core.accounts import CPU, GPU, GPU_TIME, MEMORY, QUEUED, RUNNING, Key
from controller.core.quotas import GPU_HOUR
from wire.api.tenants import QuotaChange, QuotaList, QuotaView
from wire.quota import EVERYBODY, Limits
from wire.words import WHOLE_GPU


async def listing(call: Call) -> QuotaList:
    """Every user, project and queue with a quota, or with jobs: what holds for it, and what it uses."""
    await call.daemon.settled()
    state = call.daemon.state
    used = [key for key, account in state.accounts.by_key.items() if any(account.used) or account.spent]
    named = state.quotas.names()
    keys = [*named, *sorted(set(used) - set(named))]
    views = tuple(_view(call, key) for key in keys)
    return QuotaList(views, state.accounts.window_s, call.daemon.seq)


async def change(call: Call) -> QuotaView:
    """Lay limits over what holds for a user, project or queue; what is not named stays as it is."""
    call.need_operator("set quotas")
    asked: QuotaChange = call.body
    scope, name = call.path["scope"], call.path["name"]
    await call.ask(inputs.SetQuota(scope, name, asked.quota, call.caller.user))
    return _view(call, (scope, name))


async def unset(call: Call) -> QuotaView:
    """Let what the configuration states hold again."""
    call.need_operator("unset quotas")
    scope, name = call.path["scope"], call.path["name"]
    await call.ask(inputs.UnsetQuota(scope, name, call.caller.user))
    return _view(call, (scope, name))


def _view(call: Call, key: Key) -> QuotaView:
    state, now = call.daemon.state, call.daemon.now()
    scope, name = key
    account = state.accounts.by_key.get(key)
    amounts = [0] * 6
    if account is not None and name != EVERYBODY:
        amounts = [account.amount(place, now, state.accounts.window_s) for place in range(6)]
    used = Limits(
        amounts[CPU],
        amounts[MEMORY],
        amounts[GPU] / WHOLE_GPU,
        amounts[RUNNING],
        amounts[QUEUED],
        round(amounts[GPU_TIME] / GPU_HOUR, 3),
    )
    return QuotaView(scope, name, state.quotas.quota(key), used, key in state.quotas.edits)
