"""Shares: who may have how much, who had it, and changing it live."""

from __future__ import annotations

from controller.api.call import Call
from controller.core import inputs
from controller.core.shares import Path, Shares
from wire.api import ShareList, ShareView, ShareWeight


async def listing(call: Call) -> ShareList:
    """Everybody who has a share, from the top down."""
    await call.daemon.settled()
    state, now = call.daemon.state, call.daemon.now()
    paths = sorted(path for path in state.shares.accounts if path)
    return ShareList(tuple(_view(state.shares, path, state.capacity, now) for path in paths), now)


async def weigh(call: Call) -> ShareList:
    """Give an organisation, a project or a user another weight, from the next decision on."""
    call.need_operator("change shares")
    asked: ShareWeight = call.body
    await call.ask(inputs.SetShare(asked.share, asked.weight, call.caller.user))
    return await listing(call)


def _view(shares: Shares, path: Path, capacity: float, now: float) -> ShareView:
    account = shares.accounts[path]
    return ShareView(
        path,
        shares.name(path),
        account.weight,
        account.weight / shares.accounts[path[:-1]].weights,
        shares.used(path, now),
        account.usage.rate,
        shares.factor(path, capacity, now),
        shares.beyond(path, now),
    )
