"""The cluster in one glance, and the controller's own health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from weakref import WeakKeyDictionary

from controller.api.call import Call
from controller.api.views import cluster_view
from controller.daemon import Daemon
from controller.store.failures import StoreHeldUp
from wire import VERSION
from wire.api.cluster import ClusterView, Health
from wire.words import JobState

_counted: WeakKeyDictionary[Daemon, tuple[int, Mapping[str, int]]] = WeakKeyDictionary()


async def show(call: Call) -> ClusterView:
    """Jobs, nodes and GPUs counted."""
    daemon = call.daemon
    await daemon.settled()
    return cluster_view(
        daemon.state,
        name=daemon.config.cluster.name,
        version=VERSION,
        now=daemon.now(),
        seq=daemon.seq,
        jobs=_jobs_by_state(daemon),
        started_at=daemon.started_at,
    )


def _jobs_by_state(daemon: Daemon) -> Mapping[str, int]:
    """Counted once per commit: many look, and there may be very many jobs."""
    seq, counts = _counted.get(daemon, (-1, {}))
    if seq != daemon.seq:
        states = Counter(job.state for job in daemon.state.jobs.values())
        counts = {state.value: states[state] for state in JobState}
        _counted[daemon] = (daemon.seq, counts)
    return counts


async def health(call: Call) -> Health:
    """Whether the controller is well, and who it takes the caller for."""
    daemon, caller = call.daemon, call.caller
    with suppress(StoreHeldUp):  # that is what is asked for
        await daemon.settled()
    uptime_s = daemon.now() - daemon.started_at
    return Health(daemon.trouble or "ok", VERSION, uptime_s, daemon.seq, caller.user, caller.role.value)
