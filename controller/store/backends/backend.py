"""The interface of a store's backend: what differs between a SQLite file and a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from controller.store.chain import Head
from controller.store.errors import StoreFailure

# The two dialects spell INSERT … ON CONFLICT alike and share no base class that says so.
Insert = sqlite.Insert | postgresql.Insert


class Backend(Protocol):
    """One kind of database for the tables.

    Several controllers on one server will hold a term instead of a lock: `open` is where it is won,
    and the transaction of a commit where it is held against the server.
    """

    engine: Engine
    where: str

    def open(self) -> Connection:
        """Take the store for this controller and connect for writing, or refuse and name its owner."""
        ...

    def reader(self) -> Engine:
        """Connections that can only read, and do not need to own the store."""
        ...

    def close(self) -> None:
        """Close all connections and release the store."""
        ...

    def insert(self, table: Table) -> Insert:
        """The dialect's INSERT, the one that knows ON CONFLICT."""
        ...

    def quick_check(self, connection: Connection) -> list[str]:
        """The errors in the structure of the database that a quick check finds."""
        ...

    def full_check(self, connection: Connection) -> list[str]:
        """The errors in the structure of the whole database."""
        ...

    def settle(self, connection: Connection, head: Head) -> None:
        """Called when the store's own checks passed: compare it with the head file, and finish the start."""
        ...

    def acknowledge(self, head: Head) -> None:
        """Record that the journal is durable up to this entry. Raises if the database was replaced."""
        ...

    def damaged(self, what: str) -> StoreFailure:
        """The error for a damaged store, after a copy of it has been kept."""
        ...

    def failure(self, error: BaseException | None) -> StoreFailure:
        """The failure that a driver's error means."""
        ...

    def backup(self, connection: Connection, path: Path) -> None:
        """Write a consistent copy while commits go on."""
        ...
