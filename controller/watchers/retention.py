"""Deletes old jobs and old journal entries in the background, in small batches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from controller.config import RetentionSection
from controller.core.model.decision.decision import Reply
from controller.core.model.inputs import controller_inputs
from controller.core.model.inputs.input import Input
from controller.store.errors import StoreFailure
from controller.store.store import Store

EVERY_S = 600.0
SHARE = 0.1
"""The thread that writes to the store may spend at most this fraction of its time on deletions."""
AT_ONCE = 200
ENTRIES_AT_ONCE = 1_000
LEAST = 1_000
"""Journal entries are deleted only if at least this many of them are too old or above the limit. This many of
the newest entries are never deleted, even if they are too old or if `journal_entries` is smaller. Each start
of the controller checks the hashes of these entries, and a client that follows the events can connect again
after a short interruption.
"""
DAY_S = 86_400.0

log = logging.getLogger("corral.retention")


@dataclass(frozen=True, slots=True)
class Deleted:
    """The number of jobs and the number of journal entries that one run of retention has deleted."""

    jobs: int = 0
    entries: int = 0


class Retention:
    """Deletes old jobs and journal entries beyond the limits in [retention].

    1. Delete ended jobs in batches of AT_ONCE until no ended job is too old and the number of ended jobs is
       within the limit.
    2. Find the journal entries that are too old or above the limit, without the newest LEAST entries. If
       they are at least LEAST entries, announce their deletion with a journal entry (JournalSealed). Then
       delete these entries in batches.
    3. After each batch, pause nine times as long as the batch took.

    Cost: a batch delays a commit by about ten milliseconds.
    """

    def __init__(
        self,
        limits: Callable[[], RetentionSection],
        store: Store,
        write: Callable[[Callable[[], object]], Awaitable[None]],
        read: Callable[[Callable[[], Any]], Awaitable[Any]],
        ask: Callable[[Input], Awaitable[Reply]],
    ) -> None:
        self._limits = limits
        self._store = store
        self._write = write
        self._read = read
        self._ask = ask
        self._running = asyncio.Lock()

    async def run(self) -> None:
        """Delete old jobs and journal entries every EVERY_S seconds until the task is cancelled. A failure is
        logged, and the next run tries again.
        """
        while True:
            try:
                deleted = await self.enforce(self._limits(), time.time())
                if deleted.jobs or deleted.entries:
                    log.info(
                        "deleted %d ended jobs and %d entries of the journal", deleted.jobs, deleted.entries
                    )
            except StoreFailure as failure:
                log.warning("nothing is deleted for now: %s", failure.message)
            except Exception:
                log.exception("retention met a bug and deletes nothing until its next run")
            await asyncio.sleep(EVERY_S)

    async def enforce(self, limits: RetentionSection, now: float) -> Deleted:
        """Delete all jobs and journal entries beyond `limits` now. Return how many were deleted."""
        async with self._running:
            return Deleted(await self._jobs(limits, now), await self._entries(limits, now))

    async def _jobs(self, limits: RetentionSection, now: float) -> int:
        before = now - limits.jobs_days * DAY_S if limits.jobs_days else float("-inf")
        most = limits.jobs or 1 << 62
        deleted = 0
        while ids := await self._read(lambda: self._store.old_jobs(before, most, AT_ONCE)):
            await self._batch(lambda ids=ids: self._store.delete_jobs(ids))  # type: ignore[misc]
            deleted += len(ids)
        return deleted

    async def _entries(self, limits: RetentionSection, now: float) -> int:
        before = now - limits.journal_days * DAY_S if limits.journal_days else float("-inf")
        most = max(LEAST, limits.journal_entries or 1 << 62)
        first = self._store.begins
        through = await self._read(lambda: self._store.old_entries(before, most, LEAST))
        if through - first >= LEAST:
            digest = await self._read(lambda: self._store.hash_of(through))
            await self._ask(controller_inputs.SealJournal(through, digest))
        sealed = await self._read(self._store.sealed)
        while self._store.begins < sealed:
            await self._batch(lambda: self._store.delete_entries(sealed, ENTRIES_AT_ONCE))
        return self._store.begins - first

    async def _batch(self, work: Callable[[], object]) -> None:
        began = time.monotonic()
        await self._write(work)
        await asyncio.sleep((time.monotonic() - began) * (1 / SHARE - 1))
