"""Routes of licences: totals, holders and waiting jobs."""

from __future__ import annotations

from collections import Counter

from controller.api.server.request import Call
from controller.core.explain.blockers import licence_holders
from wire.api.policy.licences import LicenceList, LicenceView


async def listing(call: Call) -> LicenceList:
    """List all licences: the total of each licence, its holders, and how many jobs wait for the licence."""
    await call.daemon.settled()
    state = call.daemon.state
    waiting: Counter[str] = Counter()
    for lane in state.queue:
        for name, _ in lane.ask.licences:
            waiting[name] += len(lane)
    licences = state.licences
    views = tuple(
        LicenceView(
            name,
            licences.total.get(name, 0),
            licences.used.get(name, 0),
            tuple(job.label for job in licence_holders(state, name)),
            waiting[name],
        )
        for name in sorted({*licences.total, *licences.used})
    )
    return LicenceList(views, call.daemon.seq)
