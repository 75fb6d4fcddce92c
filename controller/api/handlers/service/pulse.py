"""Routes of the pulse: figures of the cluster over the last minutes or the last day, and the loads of GPUs
over the last 10 minutes.
"""

from __future__ import annotations

from controller.api.server.request import Call
from controller.watchers.gpu_loads import KEPT_S
from controller.watchers.pulse import EVERY_S, MINUTE_S, MINUTES_KEPT, SECONDS_KEPT
from wire.api.service.cluster import GpuLoadView, PulseView

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


async def gpu_loads(call: Call) -> GpuLoadView:
    """Show the loads of the GPUs of some nodes, and the mean loads of some jobs, over the last 10 minutes.
    Unknown nodes and jobs are left out.
    """
    daemon, points = call.daemon, call.query["points"]
    loads, jobs = daemon.pulse.gpu_loads, daemon.state.jobs
    return GpuLoadView(
        {name: loads.of_node(name, points) for name in call.query["node"]},
        {str(number): loads.of_job(jobs[number], points) for number in call.query["job"] if number in jobs},
        KEPT_S / points,
        daemon.now(),
    )
