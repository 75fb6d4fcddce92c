"""Where a store lives: what differs between one SQLite file and a PostgreSQL server, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from controller.store.chain import Head
from controller.store.failures import StoreFailure

# The two dialects spell INSERT … ON CONFLICT alike and share no base class that says so.
Insert = sqlite.Insert | postgresql.Insert


class Place(Protocol):
    """One kind of home for the tables.

    Several controllers on one server will hold a term instead of a lock: `open` is where it is won,
    and the transaction of a commit where it is held against the server.
    """

    engine: Engine
    where: str

    def open(self) -> Connection:
        """Become the only controller here and connect for writing, or refuse, naming the other one."""
        ...

    def close(self) -> None:
        """Close what is left open and give the place up."""
        ...

    def insert(self, table: Table) -> Insert:
        """The dialect's INSERT, the one that knows ON CONFLICT."""
        ...

    def quick_check(self, connection: Connection) -> list[str]:
        """What is wrong with the structure of the database, as far as a start can wait for."""
        ...

    def full_check(self, connection: Connection) -> list[str]:
        """What is wrong with the structure of the database, read whole."""
        ...

    def settle(self, connection: Connection, head: Head) -> None:
        """The store is sound by itself: compare it with what was noted, and finish what was left undone."""
        ...

    def acknowledge(self, head: Head) -> None:
        """The journal is durable up to here, unless the place is not the one that was opened."""
        ...

    def damaged(self, what: str) -> StoreFailure:
        """Keep the evidence, and say where it is and how to go on."""
        ...

    def failure(self, error: BaseException | None) -> StoreFailure:
        """A driver's error in words."""
        ...

    def backup(self, connection: Connection, path: Path) -> None:
        """A consistent copy while work goes on."""
        ...
