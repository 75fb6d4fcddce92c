"""The interface of a store's backend: the operations that differ between SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from controller.store.chain import Head
from controller.store.errors import StoreFailure

# Both dialects have the method for INSERT … ON CONFLICT, but no common base class declares it.
Insert = sqlite.Insert | postgresql.Insert


class Backend(Protocol):
    """One kind of database for the tables.

    Several controllers on one server will need a leader term instead of a lock. `open` will obtain the term,
    and the transaction of each commit will check on the server that the term is still valid.
    """

    engine: Engine
    where: str

    def open(self) -> Connection:
        """Lock the store for this controller and connect for writing. Raises StoreRefused with the owner if
        another controller has the lock."""
        ...

    def reader(self) -> Engine:
        """An engine for read-only connections. They do not need the lock on the store."""
        ...

    def close(self) -> None:
        """Close all connections and release the store."""
        ...

    def insert(self, table: Table) -> Insert:
        """The INSERT statement of the dialect, which supports ON CONFLICT."""
        ...

    def quick_check(self, connection: Connection) -> list[str]:
        """The errors in the structure of the database that a quick check finds."""
        ...

    def full_check(self, connection: Connection) -> list[str]:
        """The errors in the structure of the whole database."""
        ...

    def settle(self, connection: Connection, head: Head) -> None:
        """Finish the start after the checks of the store: compare the newest entry with the last acknowledged
        one."""
        ...

    def acknowledge(self, head: Head) -> None:
        """Record that the journal is durable up to this entry. Raises StoreBroken if the database was
        replaced."""
        ...

    def damaged(self, what: str) -> StoreFailure:
        """Keep a copy of the damaged store and return the error that describes the damage."""
        ...

    def failure(self, error: BaseException | None) -> StoreFailure:
        """The store failure that an error of the database driver stands for."""
        ...

    def backup(self, connection: Connection, path: Path) -> None:
        """Write a consistent copy of the database. Commits can continue meanwhile."""
        ...
