"""Licences: how many there are, who holds them, who waits."""

from __future__ import annotations

from collections import Counter

from controller.api.call import Call
from controller.core.obstacles import holders_of
from wire.api.tenants import LicenceList, LicenceView


async def listing(call: Call) -> LicenceList:
    """Every licence, also one that is held though the configuration does not name it any more."""
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
            tuple(job.label for job in holders_of(state, name)),
            waiting[name],
        )
        for name in sorted({*licences.total, *licences.used})
    )
    return LicenceList(views, call.daemon.seq)
