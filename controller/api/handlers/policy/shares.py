"""Routes of fair shares: list weights, limits and usage, and set weights and limits."""

from __future__ import annotations

from controller.api.handlers.service.known_names import need_share
from controller.api.server.request import Call
from controller.api.views.hours import hours_in_force
from controller.core.explain.blockers import share_free_at
from controller.core.fairshare.share_tree import SharePath
from controller.core.fairshare.usage import share_problem
from controller.core.model.inputs import policy_inputs
from controller.core.model.job import NEVER
from controller.core.state.state import State
from wire.api.policy.shares import ShareList, ShareView, ShareWeight


async def listing(call: Call) -> ShareList:
    """List the organisations, projects and users of the fair-share tree, each after its parent."""
    await call.daemon.settled()
    state, now = call.daemon.state, call.daemon.now()
    paths = sorted(path for path in state.shares.accounts if path)
    views = tuple(_view(state, path, now) for path in paths)
    return ShareList(views, now, hours_in_force(state, now))


async def weigh(call: Call, request: ShareWeight) -> ShareList:
    """Set the fair-share weight or the limits of an organisation, project or user."""
    if share_problem(request.share, request.weight, request.soft, request.hard) is None:
        await need_share(call, request.share)
    await call.ask(
        policy_inputs.SetShare(request.share, request.weight, call.caller.user, request.soft, request.hard)
    )
    return await listing(call)


def _view(state: State, path: SharePath, now: float) -> ShareView:
    shares, account = state.shares, state.shares.accounts[path]
    name, stopped = shares.name(path), shares.at_hard_limit(path, now)
    until = NEVER if stopped is None else share_free_at(state, stopped, now)
    return ShareView(
        path,
        name,
        account.weight,
        account.weight / shares.accounts[path[:-1]].weights,
        shares.used(path, now),
        account.usage.rate,
        shares.factor(path, state.capacity, now),
        shares.over_soft_limit(path, now),
        shares.soft.get(name),
        shares.hard.get(name),
        stopped.name if stopped is not None else "",
        until if until < NEVER else None,
    )
