"""Opens a store only for reading, even while a controller uses the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from controller.store import records, tables
from controller.store.backends.backend import Backend
from controller.store.backends.backend_of_url import backend_of
from controller.store.chain import Head
from controller.store.errors import StoreFailure, StoreRefused
from controller.store.maintenance.verify import Progress, VerifyReport, verify


class StoreReader:
    """Reads a store. It takes no lock and changes nothing."""

    def __init__(self, url: str) -> None:
        self._place: Backend = backend_of(url)
        self.where = self._place.where

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Verify the whole store (see the module verify) in one snapshot of the database."""
        with self._reading() as connection:
            return verify(self._place, connection, progress)

    def backup(self, path: Path) -> None:
        """Write a consistent copy of the store to a new file with mode 0600. Commits can continue during the
        copy."""
        with self._reading() as connection:
            self._place.backup(connection, path)

    def head(self) -> Head:
        """Return the number and hash of the newest journal entry; number 0 if the journal is empty."""
        with self._reading() as connection:
            newest = records.ENTRIES.order_by(tables.journal.c.seq.desc()).limit(1)
            row = connection.execute(newest).one_or_none()
            return Head(0, b"") if row is None else Head(row.seq, row.hash)

    def has(self, head: Head) -> bool:
        """Return whether the journal has an entry with this number and hash."""
        with self._reading() as connection:
            there = select(tables.journal.c.hash).where(tables.journal.c.seq == head.seq)
            return bool(connection.scalar(there) == head.hash)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        engine = self._place.reader()
        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            failure = self._place.failure(error.orig)
            raise StoreRefused(failure.message, failure.hint) from error
        except StoreFailure as failure:
            raise StoreRefused(failure.message, failure.hint) from failure
        finally:
            engine.dispose()
