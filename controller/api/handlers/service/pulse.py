"""Route of the pulse: figures of the cluster, sampled over the last minutes or the last day."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.watchers.pulse import EVERY_S, MINUTE_S, MINUTES_KEPT, SECONDS_KEPT
from wire.api.service.cluster import PulseView

RINGS = ("seconds", "minutes")


async def show(call: Call) -> PulseView:
    """Show figures of the cluster over time: GPUs, load, power, queue, starts, failures and waits."""
    daemon = call.daemon
    if call.query["ring"] == "seconds":
        ring, step_s, kept_s = daemon.pulse.seconds, EVERY_S, EVERY_S * SECONDS_KEPT
    else:
        ring, step_s, kept_s = daemon.pulse.minutes, MINUTE_S, MINUTE_S * MINUTES_KEPT
    since = call.query["after"] or 0
    samples = tuple(each for each in ring if each.at > since)
    return PulseView(samples, step_s, kept_s, daemon.started_at, daemon.now())
