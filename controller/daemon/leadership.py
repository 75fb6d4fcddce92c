"""The rules of a controller that shares its store with others: it follows the leader's journal, stops when
its lease has ended, and refuses agents that know a newer journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from controller.commit_feed import Commit
from controller.core.engine import Engine
from controller.core.model.events.kinds import event_of
from controller.core.model.rows import JournalEntry
from controller.core.state.note_rows import clear_note_changes
from controller.daemon.batches.commits import commit_of
from controller.store.errors import StoreAway, StoreFailure
from controller.store.store import Store

LEASE_CHECK_S = 0.25
"""Seconds between two checks whether this controller may still act."""

log = logging.getLogger("corral.daemon")


def apply_entries(engine: Engine, entries: list[JournalEntry]) -> Commit:
    """Apply journal entries of the leader to the state of a standby. Return them as a commit."""
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
    """Call `stop_acting` whenever the lease was not renewed in time, until this task is cancelled. `acts`
    returns False while the controller does not act because of an earlier failure of the store.
    """
    while True:
        await asyncio.sleep(LEASE_CHECK_S)
        if acts() and not store.may_act:
            log.error("the lease of the leader could not be renewed: this controller stops acting")
            await stop_acting(store.stop_acting())


def why_entry_is_lost(store: Store, remembered: str) -> str:
    """Return the reason to refuse an agent that remembers this journal entry; "" to accept the agent."""
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
