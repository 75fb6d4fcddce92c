"""Shares: who may have how much, who had it, and changing it live."""

from __future__ import annotations

from controller.api.call import Call
from controller.core import inputs
from controller.core.jobs import NEVER
from controller.core.obstacles import ends_of
from controller.core.shares import Path
from controller.core.state import State
from wire.api.tenants import ShareList, ShareView, ShareWeight


async def listing(call: Call) -> ShareList:
    """Everybody who has a share, from the top down."""
    await call.daemon.settled()
    state, now = call.daemon.state, call.daemon.now()
    paths = sorted(path for path in state.shares.accounts if path)
    return ShareList(tuple(_view(state, path, now) for path in paths), now)


async def weigh(call: Call) -> ShareList:
    """Give an organisation, a project or a user another weight or limits, from the next decision on."""
    call.need_operator("change shares")
    asked: ShareWeight = call.body
    await call.ask(inputs.SetShare(asked.share, asked.weight, call.caller.user, asked.soft, asked.hard))
    return await listing(call)


def _view(state: State, path: Path, now: float) -> ShareView:
    shares, account = state.shares, state.shares.accounts[path]
    name, stopped = shares.name(path), shares.stopped(path, now)
    until = NEVER if stopped is None else ends_of(state, stopped, now)
    return ShareView(
        path,
        name,
        account.weight,
        account.weight / shares.accounts[path[:-1]].weights,
        shares.used(path, now),
        account.usage.rate,
        shares.factor(path, state.capacity, now),
        shares.beyond(path, now),
        shares.soft.get(name),
        shares.hard.get(name),
        stopped.name if stopped is not None else "",
        until if until < NEVER else None,
    )
