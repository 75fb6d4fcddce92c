"""The journal and the tables of one cluster: opens a store, commits to it, and deletes its old rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from controller.core.model.rows import Batch
from controller.store.backends.backend import Backend
from controller.store.backends.backend_of_url import backend_of
from controller.store.batch_writer import BatchColumns, BatchWriter, chained
from controller.store.errors import StoreBroken, StoreFailure, StoreRefused, StoreStale
from controller.store.leader.store_leadership import StoreLeadership, prepare
from controller.store.loading import Loaded, load
from controller.store.maintenance import retention
from controller.store.migrate import is_newest


class Store(StoreLeadership):
    """The journal and the tables of one cluster. One thread commits, and other threads may read at the
    same time.
    """

    def __init__(self, place: Backend, writer: Connection | None, keep: int) -> None:
        super().__init__(place, writer)
        self._keep = keep
        self._rows = BatchWriter(place)

    @property
    def warnings(self) -> Sequence[str]:
        """Return a sentence for each setting of the database server with which acknowledged jobs can be
        lost.
        """
        return self._place.warnings

    @classmethod
    def open(cls, url: str, *, keep: int = 1_000, memory: Path | None = None) -> Self:
        """Lock the store at this URL for this process (on PostgreSQL: become the leader), migrate its tables,
        and check the store. Raise StoreRefused if another controller has the lock or leads.

        `keep` is the number of ended jobs that load() returns. A missing SQLite file is created. `memory` is
        the file in which this host remembers the newest journal entry of a store on PostgreSQL.
        """
        place = backend_of(url, memory)
        store = cls._opened(place, place.open, keep)
        assert store is not None  # open() either leads or raises.
        return store

    @classmethod
    def join(cls, url: str, *, keep: int = 1_000, memory: Path | None = None) -> Self | None:
        """Open the store at this URL like open(), or only for reading if another controller leads. Return
        None if another controller leads and has not made the tables of this version yet.
        """
        place = backend_of(url, memory)
        if place.lease is None:
            return cls._opened(place, place.open, keep)
        return cls._opened(place, place.try_open, keep)

    @classmethod
    def _opened(cls, place: Backend, connect: Callable[[], Connection | None], keep: int) -> Self | None:
        with ExitStack() as undo:
            undo.callback(place.close)
            try:
                writer = connect()
                if writer is None:
                    with place.engine.connect() as connection:
                        newest = is_newest(connection)
                    if not newest:
                        return None
                    store = cls(place, None, keep)
                    assert place.lease is not None
                    place.lease.begin()
                else:
                    undo.callback(writer.close)
                    prepare(place, writer)
                    store = cls(place, writer, keep)
                    place.settle(writer, store._head)
            except (DBAPIError, StoreFailure) as error:
                failure = error if isinstance(error, StoreFailure) else place.failure(error.orig)
                raise StoreRefused(failure.message, failure.hint) from error
            undo.pop_all()
        return store

    def load(self) -> Loaded:
        """Read the rows that a controller needs at its start."""
        with self._reading() as connection:
            return load(connection, self._keep, self._meta)

    def commit(self, batch: Batch) -> None:
        """Write journal entries and changed rows in one transaction. When this method returns, all these
        entries and rows are on disk.

        If a job's row has a `spec`, all its columns are written. If `spec` is None, only the columns
        `records.CHANGING` are written, and all other columns keep their stored values.
        """
        self._must_work()
        head, entries = chained(self._head, batch.entries)
        columns = BatchColumns.of(batch, entries)
        try:
            with self._proven():
                self._rows.write(self._writer, columns)
            self._place.acknowledge(head)
        except (StoreBroken, StoreStale) as broken:
            self._broken = broken
            raise
        except DBAPIError as error:
            raise self._failed(error) from error
        self._head = head

    def old_jobs(self, before: float, most: int, at_once: int) -> list[int]:
        """Return up to `at_once` ended jobs to delete: jobs that ended before the time `before`. If more
        ended jobs are stored than the limit `most`, the surplus jobs that ended first are returned too.
        """
        with self._reading() as connection:
            return retention.old_jobs(connection, before, most, at_once)

    def old_entries(self, before: float, most: int, least: int) -> int:
        """Return the number of the newest journal entry to delete.

        An entry must be deleted if it is older than the time `before`, or if there are at least `most` newer
        entries. The newest `least` entries are never deleted. If no entry must be deleted, return a number
        below that of the oldest entry.
        """
        with self._reading() as connection:
            return retention.old_entries(connection, before, most, least)

    def sealed(self) -> int:
        """Return the number of the last journal entry whose deletion is announced by a later entry
        (JournalSealed); 0 if no deletion is announced. Only announced entries may be deleted.
        """
        with self._reading() as connection:
            return retention.sealed(connection)

    def delete_jobs(self, ids: Collection[int]) -> None:
        """Delete the rows of ended jobs, and add their usage to the usage by day. Call this only in the
        thread that commits.
        """
        self._write(lambda: retention.delete_jobs(self._place, self._writer, ids))

    def delete_entries(self, through: int, at_once: int) -> None:
        """Delete the oldest journal entries: at most `at_once` entries, and none with a number above
        `through`. Call this only in the thread that commits."""
        base = self._write(lambda: retention.delete_entries(self._writer, through, self._base, at_once))
        self._base = base or self._base

    def close(self) -> None:
        """Close all connections, and release the lock or the lease."""
        if self._leads_with is not None:
            self._leads_with.close()
        self._place.close()
