"""The time in which the store cannot be written: from the first failure until a write succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from controller.core.model.rows import Batch
from controller.daemon.store_threads import StoreThreads
from controller.store.errors import StoreUnavailable
from controller.store.store import Store

STORE_RETRY_S = 1.0
"""Seconds between two tries to write to a store that failed."""

log = logging.getLogger("corral.daemon")


class StoreOutage:
    """Handles a store that cannot be written at present. The main loop processes no inputs until a write
    succeeds.

    1. `begin` loads the state on disk again, because the changes of the failed commit are not on disk. If it
       is unknown whether they are on disk (`adrift`), step 2 loads the state.
    2. `end` tries every STORE_RETRY_S seconds to write the rows of the nodes unchanged, as step 1 or 2 has
       loaded them. Older rows are never written, because they may lack later changes.
    """

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        recover: Callable[[], None],
        node_rows: Callable[[], Batch],
    ) -> None:
        """`recover` loads the state on disk again. `node_rows` returns the rows of all nodes on disk."""
        self.failure: StoreUnavailable | None = None
        """The failure; None while the store can be written."""
        self._store = store
        self._threads = threads
        self._recover = recover
        self._node_rows = node_rows

    @property
    def problem(self) -> str:
        """The reason why the store cannot be written, such as "database locked"; "" if the store can be
        written.
        """
        return self.failure.trouble if self.failure is not None else ""

    def begin(self, failure: StoreUnavailable) -> None:
        """Record the failure of a write, and load the state on disk again if it is known which state is on
        disk.
        """
        log.error("%s. %s", failure.message, failure.hint)
        self.failure = failure
        if not failure.adrift:
            self._recover()

    async def end(self, is_stopping: Callable[[], bool]) -> bool:
        """Try to write until a write succeeds. Return False, and leave `failure` set, if `is_stopping`
        returns True first.
        """
        while not is_stopping():
            await asyncio.sleep(STORE_RETRY_S)
            with suppress(StoreUnavailable):
                await self._threads.write(self._store.resume)
                if self.failure is not None and self.failure.adrift:
                    self._recover()
                await self._threads.write(lambda: self._store.commit(self._node_rows()))
                self.failure = None
                log.info("the store can be written again")
                return True
        return False
