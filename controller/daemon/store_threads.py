"""Threads that use the store. With them, a slow disk does not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controller.core.model.events.event import Event, JobEvent, NodeEvent
from controller.core.model.events.kinds import body_of, kind_of
from controller.core.model.rows import Batch, JournalEntry, NoteRow
from controller.core.state.job_and_node_rows import changed_rows
from controller.core.state.note_rows import changed_notes, clear_note_changes
from controller.core.state.state import State
from controller.store.store import Store

T = TypeVar("T")


class StoreThreads:
    """Three threads for access to the store: one for writes, one for short reads, and one for reports, which
    may take minutes.

    Invariant: only the writer's thread writes, in the order of the calls. Old jobs and journal entries are
    also deleted in this thread, between two commits.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._reader = ThreadPoolExecutor(1, "store-reader")
        self._reporter = ThreadPoolExecutor(1, "store-reports")

    async def read(self, work: Callable[[], T]) -> T:
        """Call `work`, which reads from the store, in the reader's thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def report(self, work: Callable[[], T]) -> T:
        """Call `work`, which may read from the store for minutes, in the thread for reports, and return
        its result."""
        return await asyncio.get_running_loop().run_in_executor(self._reporter, work)

    async def write(self, work: Callable[[], object]) -> None:
        """Call `work`, which changes the store, in the writer's thread, between two commits."""
        await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def commit(
        self, state: State, last_seq: int, events: tuple[Event, ...], more_notes: Sequence[NoteRow] = ()
    ) -> Batch:
        """Write the events, and the rows of the changed jobs and nodes, in one transaction. `more_notes` are
        rows about data that is not part of the state, such as accounting figures.

        The rows are also built in the writer's thread, because this takes long for a large array. The caller
        must not change the state before this method returns.
        """

        def write() -> Batch:
            jobs, nodes = changed_rows(state, events)
            notes = [*changed_notes(state, events), *more_notes]
            clear_note_changes(state)
            entries = tuple(entry_of(seq, event) for seq, event in enumerate(events, last_seq + 1))
            used, state.used = state.used or (), []
            batch = Batch(entries, tuple(jobs), tuple(nodes), tuple(notes), tuple(used))
            self._store.commit(batch)
            return batch

        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    def close(self) -> None:
        """Wait until all submitted work is done, and end the threads."""
        self._reporter.shutdown()
        self._writer.shutdown()
        self._reader.shutdown()


def entry_of(seq: int, event: Event) -> JournalEntry:
    return JournalEntry(
        seq=seq,
        at=event.at,
        kind=kind_of(event),
        job=event.job if isinstance(event, JobEvent) else None,
        node=event.node if isinstance(event, NodeEvent) else getattr(event, "node", None),
        body=body_of(event),
    )
