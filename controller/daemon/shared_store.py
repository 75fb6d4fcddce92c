"""The rules of a controller that shares its store with other controllers. It follows the leader's journal, or
stops acting as the leader when its lease has ended. It refuses agents that know journal entries which the
database lacks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from controller.commit_feed import Commit
from controller.core.engine import Engine
from controller.core.model.events.kinds import event_of
from controller.core.model.rows import JournalEntry
from controller.core.state.note_rows import clear_note_changes
from controller.core.state.state import State
from controller.daemon.batches.commits import commit_of
from controller.store.errors import StoreAway, StoreFailure
from controller.store.store import Store
from wire.agent.reports import AttemptStatus

LEASE_CHECK_S = 0.25
"""Seconds between two checks whether this controller may still act."""
CONNECT_S = 30.0
"""After an accepted loss of journal entries, the first leader waits at most this many seconds for the agents
of all nodes before it starts jobs.
"""
STOP_S = 600.0
"""After an accepted loss of journal entries, starts of jobs are delayed for at most this many seconds while
an attempt that the database does not know still runs.
"""

log = logging.getLogger("corral.daemon")


def apply_entries(engine: Engine, entries: list[JournalEntry]) -> Commit:
    """Apply journal entries of the leader to the state of a standby. Return the message to event streams
    about them.
    """
    engine.follow([event_of(entry.kind, entry.body) for entry in entries])
    state = engine.state
    # Forget which rows have changed, because the leader writes them.
    clear_note_changes(state)
    state.used = []
    jobs = frozenset(entry.job for entry in entries if entry.job is not None and entry.job in state.jobs)
    nodes = {entry.node for entry in entries if entry.node is not None}
    return commit_of(state, tuple(entries), jobs, nodes)


async def watch_lease(
    store: Store, acts: Callable[[], bool], stop_acting: Callable[[StoreAway], Awaitable[None]]
) -> None:
    """Call `stop_acting` whenever the lease was not renewed in time. Run until this task is cancelled. `acts`
    returns False while the controller has already stopped acting because the store failed.
    """
    while True:
        await asyncio.sleep(LEASE_CHECK_S)
        if acts() and not store.may_act:
            log.error("the lease of the leader could not be renewed: this controller stops acting")
            await stop_acting(store.stop_acting())


def why_entry_is_lost(store: Store, remembered: str) -> str:
    """Return the reason to refuse an agent that knows the journal entry `remembered`, if the database lacks
    this entry; "" to accept the agent.
    """
    try:
        lost = store.lost_entry(remembered)
    except StoreFailure as failure:
        return failure.message
    if not lost:
        return ""
    return (
        f"the database went back in time: the node has been told of journal entry {lost}, which the "
        "database does not have. Restore the newest database, or stop all controllers and run "
        "'corral admin accept-loss'"
    )


class StrayAttempts:
    """After an accepted loss of journal entries, delays new starts until the attempts that the database does
    not know have ended. Otherwise a job whose start was lost would run twice at once.

    Only the first leader after `corral admin accept-loss` takes these steps:
    1. Wait until the agent of each node has connected, but at most CONNECT_S seconds, because a node may not
       exist any more.
    2. `saw` notes the attempts in the hello of an agent that have not ended and that the state does not have.
       The engine orders each of them to stop.
    3. `ended` removes an attempt when its agent reports the end. While an attempt is left, but at most STOP_S
       seconds, no job starts.

    Example: job 50 was queued, started on gpu02 and then lost with the newest 100 entries. The database shows
    job 50 as queued. gpu02 reports attempt 1 of job 50, which is stopped. Then job 50 starts again.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._unseen: set[str] = set()
        self._began = float("-inf")
        self._left: set[tuple[str, int, int]] = set()

    def begin(self) -> None:
        """Begin to wait for the agents of all nodes."""
        self._unseen = {node.name for node in self._state().nodes}
        self._began = time.monotonic()

    def saw(self, node: str, attempts: Iterable[AttemptStatus]) -> None:
        """Record the attempts in an agent's hello that have not ended and that the state does not have. Do
        nothing before begin().
        """
        if self._began == float("-inf"):
            return
        self._unseen.discard(node)
        self._left = {each for each in self._left if each[0] != node}
        for status in attempts:
            job = self._state().jobs.get(status.job)
            known = job is not None and job.attempt == status.attempt and node in job.members
            if status.ended_at is None and not known:
                log.warning("%s runs attempt %d.%d of a lost entry", node, status.job, status.attempt)
                self._left.add((node, status.job, status.attempt))

    def ended(self, node: str, status: AttemptStatus) -> None:
        """Remove an attempt from the recorded attempts if it has ended."""
        if status.ended_at is not None:
            self._left.discard((node, status.job, status.attempt))

    @property
    def delay_starts(self) -> bool:
        """Return whether the starts of all jobs must wait now."""
        passed_s = time.monotonic() - self._began
        return passed_s < (STOP_S if self._left else CONNECT_S if self._unseen else 0.0)
