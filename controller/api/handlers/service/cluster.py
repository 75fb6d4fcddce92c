"""Routes of the cluster summary and of the controller's health."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

from aiohttp import web

from controller.api.server.request import Call
from controller.core.state.state import State
from controller.daemon import Daemon
from controller.store.errors import StoreUnavailable
from wire import VERSION
from wire.api.service.cluster import ClusterView, Health
from wire.names import WHOLE_GPU, JobState, NodeState

LATE_S = 5.0
"""Seconds for which health and metrics wait for a commit. Then they show alarms and older figures."""
_counted: WeakKeyDictionary[Daemon, tuple[int, Mapping[str, int]]] = WeakKeyDictionary()


async def show(call: Call) -> ClusterView:
    """Show the numbers of jobs, nodes and GPUs by state. GPUs of disconnected nodes are included."""
    daemon = call.daemon
    await daemon.settled()
    nodes = daemon.state.nodes
    states = Counter(node.state for node in nodes)
    held = (gpu.milli for node in nodes for part in node.held.values() for gpu in part.gpus)
    cpu_milli = int(nodes.columns.cpu_total.sum())
    return ClusterView(
        name=daemon.config.cluster.name,
        version=VERSION,
        now=daemon.now(),
        seq=daemon.seq,
        jobs=_jobs_by_state(daemon),
        nodes={each.value: states[each] for each in NodeState},
        gpus=int(nodes.columns.gpu_count.sum()),
        gpus_used=sum(held) / WHOLE_GPU,
        cpu_milli=cpu_milli,
        cpu_used_milli=cpu_milli - int(nodes.columns.cpu_free.sum()),
        started_at=daemon.started_at,
        wait_alarms=wait_alarms(daemon.state),
    )


def wait_alarms(state: State) -> int:
    """Return the number of waiting jobs that have waited much longer than usual."""
    return sum(state.jobs[number].wait.alarmed for lane in state.queue for _, number in lane)


def _jobs_by_state(daemon: Daemon) -> Mapping[str, int]:
    """Return the number of jobs in each state. The numbers are cached until the next commit, because many
    clients poll these numbers.
    """
    seq, counts = _counted.get(daemon, (-1, {}))
    if seq != daemon.seq:
        states = Counter(job.state for job in daemon.state.jobs.values())
        counts = {state.value: states[state] for state in JobState}
        _counted[daemon] = (daemon.seq, counts)
    return counts


async def health(call: Call) -> Health:
    """Show whether the controller can write its store, and the name and role of the caller."""
    daemon, caller = call.daemon, call.caller
    await settled_or_late(daemon)
    return Health(
        daemon.problem or "ok",
        VERSION,
        daemon.now() - daemon.started_at,
        daemon.seq,
        caller.user,
        caller.role.value,
        daemon.watch.alarms,
    )


async def ready(call: Call) -> web.Response:
    """Show whether the controller works, for load balancers and probes.

    The status is 200 with the text `ok` or `standby`, or 503 with `not ready`. The answer has no details,
    because no token is needed.
    """
    daemon = call.daemon
    if daemon.problem:
        return web.Response(text="not ready\n", status=503)
    return web.Response(text="standby\n" if daemon.standby is not None else "ok\n")


async def settled_or_late(daemon: Daemon) -> None:
    """Wait until the present commit is on disk, but only LATE_S seconds. Ignore the error of the store,
    because the callers show it.
    """
    with suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(LATE_S):
            await daemon.settled()
