"""Follows the journal of the leading controller, so that this controller can answer read requests and take
over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from controller.core.model.rows import JournalEntry
from controller.daemon.store_threads import StoreThreads
from controller.store.errors import StoreRefused, StoreUnavailable
from controller.store.leader.rows import LeaderRow
from controller.store.store import Store

LOOK_S = 0.25
"""Seconds between two looks of a standby at the leader's lease and at the journal."""
MOST_ENTRIES = 5_000
"""The most journal entries that are read at once."""

log = logging.getLogger("corral.leader")


class Standby:
    """A controller that does not lead: it follows the journal, and takes over when no other controller leads.

    A look, every LOOK_S seconds:
    1. If the lease of the leader has ended, take the lease, and stop following.
    2. Read the journal entries that are new since the last look, and pass them to `follow`, which applies
       them to the state in memory.
    3. If the entries do not continue the known ones, or cannot be applied, call `reload`, which loads the
       whole state. This is necessary after retention has deleted entries, or while the leader is a newer
       version of Corral.
    4. If the database does not answer, keep the state, and try again. If it does not answer in the middle of
       step 1, give the lease back, and try again.

    Invariant: the state in memory is that of one journal entry, and never one that a leader did not commit.
    Cost: two short queries every LOOK_S seconds, and the time to apply each event.

    Example: the leader commits the submit of job 7 at 12:00:00.0. At 12:00:00.2 this controller shows job 7,
    and its answers have the header `Corral-As-Of` with that time.
    """

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        follow: Callable[[list[JournalEntry]], None],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._threads = threads
        self._follow = follow
        self._reload = reload
        self._stopping = asyncio.Event()
        self.leader: LeaderRow | None = None
        """The leader at the last look at the database; None if no controller led."""
        self.as_of = time.time()
        """The time (system clock) of the last look at the database after which the state in memory was
        complete.
        """

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> bool:
        """Follow until this controller leads or stop() is called. Return whether it leads. Raise a
        StoreFailure if the database lacks an entry that this controller has seen.
        """
        answers = True
        while not self._stopping.is_set():
            try:
                if await self._look():
                    return True
                if not answers:
                    log.info("the database answers again")
                answers = True
            except StoreUnavailable as failure:
                if answers:
                    log.warning("%s. %s", failure.message, failure.hint)
                answers = False
            try:
                await asyncio.wait_for(self._stopping.wait(), LOOK_S)
            except TimeoutError:
                continue
        return False

    async def _look(self) -> bool:
        looked_at = time.time()
        leader = await self._threads.read(self._store.leader)
        if leader is None or leader.left_s <= 0 or self.leader is None:
            # If the take-over fails half-way, no leader is known, so that the next look tries again.
            self.leader = None
            if await self._threads.read(self._store.try_lead):
                return True
            leader = await self._threads.read(self._store.leader)
        self.leader = leader if leader is not None and leader.left_s > 0 else None
        try:
            while entries := await self._threads.read(lambda: self._store.follow(MOST_ENTRIES)):
                self._follow(entries)
        except (StoreRefused, LookupError, ValueError, TypeError, AttributeError) as error:
            log.warning("the state is loaded again, because the journal cannot be followed: %s", error)
            await self._reload()
        self.as_of = looked_at
        return False
