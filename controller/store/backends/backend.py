"""The interface of a database that holds a store: the operations that differ between SQLite and
PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from controller.store.chain import Head
from controller.store.errors import StoreFailure
from controller.store.leader.lease import Lease

# SQLAlchemy supports INSERT … ON CONFLICT for both databases, but its common base class does not declare
# this.
Insert = sqlite.Insert | postgresql.Insert


class Backend(Protocol):
    """A database that holds a store: a SQLite file or a database on a PostgreSQL server.

    `open` takes a lock on the file, or the lease of the leader, so that only one controller at a time writes
    to the store.
    """

    engine: Engine
    where: str
    warnings: Sequence[str]
    """A sentence for each setting of the database server with which acknowledged jobs can be lost."""

    @property
    def lease(self) -> Lease | None:
        """Return the lease of the leader, if several controllers can use the store; None if a lock on a file
        allows only one.
        """
        ...

    def open(self) -> Connection:
        """Take the lock or the lease of the store for this controller, and connect for writing.

        Raise StoreRefused if another controller has the lock or the lease. The error names the process of
        that controller.
        """
        ...

    def try_open(self) -> Connection | None:
        """Connect for writing if no other controller leads; return None if another controller leads. Raise
        DBAPIError if the database does not answer. If the store can have only one controller, do the same as
        `open`.
        """
        ...

    def reopen(self) -> Connection:
        """Connect for writing again after a lost connection. Raise StoreRefused if another controller has led
        since then.
        """
        ...

    def check_lease(self) -> None:
        """Raise StoreAway if this controller must not write any more, because its lease was not renewed in
        time.
        """
        ...

    def prove(self, transaction: Connection) -> None:
        """Prove at the beginning of a transaction that this controller is still the leader. Raise StoreStale
        if another controller has taken over.
        """
        ...

    def reader(self) -> Engine:
        """Return a SQLAlchemy engine for read-only connections, which need no lock on the store."""
        ...

    def close(self) -> None:
        """Close all connections, and release the lock or the lease."""
        ...

    def insert(self, table: Table) -> Insert:
        """Return an INSERT statement, to which ON CONFLICT can be added, in the dialect of the database."""
        ...

    def quick_check(self, connection: Connection) -> list[str]:
        """Check the structure of the database, and return the errors. Return an empty list if the check would
        take more than a few seconds, or if the database is on a PostgreSQL server.
        """
        ...

    def full_check(self, connection: Connection) -> list[str]:
        """Check the structure of the whole database, and return the errors. Return an empty list for a
        PostgreSQL server.
        """
        ...

    def settle(self, connection: Connection, head: Head) -> None:
        """Raise StoreBroken or StoreRefused if the journal entry that was acknowledged last is missing in the
        database. `head` is the newest entry in the database. This is the last check of the store when a
        controller starts or becomes the leader.
        """
        ...

    def acknowledge(self, head: Head) -> None:
        """Record that all journal entries up to `head` are durable. Raise StoreBroken if the database file
        was moved, deleted or replaced.
        """
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
        """Write a consistent copy of the database to the file `path`. Commits can continue during the copy.
        Raise StoreRefused for a PostgreSQL server, which has backups of its own.
        """
        ...
