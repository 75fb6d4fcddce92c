"""Writes the events of a batch to the store, and publishes commits to hooks and event streams."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from controller.commit_feed import Commit, CommitFeed
from controller.core.accounting.cluster_accounting import ClusterAccounting
from controller.core.accounting.wait_alarms import WaitAlarms
from controller.core.engine import Engine
from controller.core.model.events.controller import PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.rows import Batch, JournalEntry
from controller.core.state.state import State
from controller.daemon.store_threads import StoreThreads
from controller.notify.notifier import Notifier
from controller.watchers.counters import ControllerCounters
from controller.watchers.placement_hooks import PlacementHooks
from controller.watchers.pulse import Pulse

log = logging.getLogger("corral.daemon")


class Commits:
    """Writes the events of each batch to the store, and then publishes them to hooks and event streams.

    1. `write` passes the events to the accounting, the pulse, the wait alarms and the notifier, and writes
       the events and the changed rows in one transaction.
    2. The caller of `write` stores the number of the last journal entry.
    3. `publish` passes the events to the hooks and the event streams, and tells the notifier that its
       messages are on disk.
    """

    def __init__(
        self,
        threads: StoreThreads,
        counters: ControllerCounters,
        accounting: ClusterAccounting,
        wait_alarms: WaitAlarms,
        pulse: Pulse,
        notifier: Notifier,
        hooks: PlacementHooks,
        feed: CommitFeed,
    ) -> None:
        self._threads = threads
        self._counters = counters
        self._accounting = accounting
        self._wait_alarms = wait_alarms
        self._pulse = pulse
        self._notifier = notifier
        self._hooks = hooks
        self._feed = feed

    async def write(self, engine: Engine, last_seq: int, events: tuple[Event, ...]) -> Batch:
        """Write the events and the changed rows in one transaction, and return the written rows. `last_seq`
        is the number of the last journal entry on disk before this transaction.
        """
        state = engine.state
        for event in events:
            if isinstance(event, PluginFailed):
                log.warning("the %s %s failed: %s", event.kind, event.name, event.why)
        began = time.monotonic()
        self._accounting.observe(state, events, events[-1].at)
        self._pulse.observe(state, events)
        self._wait_alarms.observe(state, events)
        figures = self._accounting.take_changed(events[-1].at)
        if figures:
            figures += self._wait_alarms.take_changed()
        figures += self._notifier.prepare(state, last_seq, events, engine.pipeline.failures)
        self._counters.commit_began = time.monotonic()
        try:
            batch = await self._threads.commit(state, last_seq, events, figures)
        finally:
            self._counters.commit_began = None
        self._counters.observe(state, events)
        self._counters.committed(len(batch.entries), time.monotonic() - began)
        state.forget_old()
        return batch

    def publish(self, state: State, batch: Batch, events: Sequence[Event]) -> None:
        """Publish the events and the changed rows of a batch that is on disk."""
        self._notifier.committed()
        self._hooks.tell(events, state)
        jobs = frozenset(row.id for row in batch.jobs)
        nodes = {row.name for row in batch.nodes}
        self._feed.publish(commit_of(state, batch.entries, jobs, nodes))


def commit_of(
    state: State, entries: tuple[JournalEntry, ...], jobs: frozenset[int], nodes: set[str]
) -> Commit:
    """Return the message to event streams about these journal entries. It names the changed jobs and the
    changed nodes. The nodes on which the changed jobs run count as changed.
    """
    of_jobs = {node for job in jobs if job in state.jobs for node in state.jobs[job].members}
    return Commit(entries[-1].seq, entries, jobs, frozenset(nodes | of_jobs))
