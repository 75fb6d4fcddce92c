"""The interface of a database that holds a store: the operations that differ between SQLite and
PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from controller.store.chain import Head
from controller.store.errors import StoreFailure

# SQLAlchemy supports INSERT … ON CONFLICT for both databases, but its common base class does not declare
# this.
Insert = sqlite.Insert | postgresql.Insert


class Backend(Protocol):
    """A database that holds a store: a SQLite file or a database on a PostgreSQL server.

    `open` takes a lock, so that only one controller at a time uses the store.
    """

    engine: Engine
    where: str

    def open(self) -> Connection:
        """Lock the store for this controller and connect for writing.

        Raise StoreRefused if another controller has the lock. The error names the process of that controller.
        """
        ...

    def reader(self) -> Engine:
        """Return a SQLAlchemy engine for read-only connections, which need no lock on the store."""
        ...

    def close(self) -> None:
        """Close all connections and release the lock."""
        ...

    def insert(self, table: Table) -> Insert:
        """Return an INSERT statement, to which ON CONFLICT can be added, in the dialect of the database."""
        ...

    def quick_check(self, connection: Connection) -> list[str]:
        """Check the structure of the database for a few seconds, and return the errors."""
        ...

    def full_check(self, connection: Connection) -> list[str]:
        """Check the structure of the whole database, and return the errors."""
        ...

    def settle(self, connection: Connection, head: Head) -> None:
        """Raise StoreBroken if the journal entry that was acknowledged last is missing in the database.
        `head` is the newest entry in the database. The controller calls this as the last check of the store
        when it starts.
        """
        ...

    def acknowledge(self, head: Head) -> None:
        """Record that all journal entries up to `head` are durable. Raise StoreBroken if the database file
        was replaced."""
        ...

    def damaged(self, what: str) -> StoreFailure:
        """Return an error about the damage that `what` describes. If the store is a file, copy the damaged
        file first.
        """
        ...

    def failure(self, error: BaseException | None) -> StoreFailure:
        """Translate an error of the database driver into a StoreFailure with a sentence and a hint."""
        ...

    def backup(self, connection: Connection, path: Path) -> None:
        """Write a consistent copy of the database. Commits can continue during the copy."""
        ...
