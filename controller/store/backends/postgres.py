"""A store on a PostgreSQL server. The controller's database session holds a lock, so that no other controller
can use the store.

When this session ends, the server releases the lock, and the controller can no longer write.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, Table, create_engine, text
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.exc import DBAPIError

from controller.store.chain import Head
from controller.store.errors import StoreAway, StoreBroken, StoreFailure, StoreFull, StoreRefused

LOCK = 0x636F7272616C  # The number of the advisory lock: the ASCII bytes of "corral".

# Wait up to one second for the lock, because after a restart the session of the former process may still hold
# the lock for a moment.
PATIENCE = text("SET LOCAL lock_timeout = '1s'")
TAKE = text("SELECT pg_advisory_lock(:lock)")
OWNER = text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) + objid::bigint = :lock"
)

DISK_FULL = "53100"
# The error code (SQLSTATE) of a write to a standby server, or to a server in read-only mode.
READ_ONLY = "25006"
LOCK_NOT_AVAILABLE = "55P03"


class PostgresServer:
    """A database on a PostgreSQL server. The server itself makes commits durable (fsync, write-ahead log).

    The controller's session holds an advisory lock of PostgreSQL, so that only one controller uses the
    database.
    """

    def __init__(self, url: URL) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise StoreRefused(
                "PostgreSQL needs the package psycopg, which is not installed",
                f"Install it for this Python: {sys.executable} -m pip install 'psycopg[binary]>=3.2'",
            )
        self.where = url.render_as_string(hide_password=True)
        since = time.strftime("%Y-%m-%d %H:%M")
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="REPEATABLE READ",  # Each reader gets a consistent snapshot.
            connect_args={
                "connect_timeout": 10,
                # Send keepalives to detect a broken network. Without keepalives, a lost connection would stay
                # open for hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 25_000,
                "application_name": f"corral pid {os.getpid()} on {socket.gethostname()[:20]} since {since}",
                "options": "-c synchronous_commit=on",
            },
        )

    def open(self) -> Connection:
        writer = self.engine.connect()
        try:
            with writer.begin():
                writer.execute(PATIENCE)
                writer.execute(TAKE, {"lock": LOCK})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            with writer:
                owner = writer.scalar(OWNER, {"lock": LOCK})
            raise StoreRefused(
                f"Another controller ({owner or 'just starting'}) owns {self.where}",
                "Stop it first, or give this controller a database of its own.",
            ) from None
        return writer

    def reader(self) -> Engine:
        return self.engine.execution_options(postgresql_readonly=True)

    def close(self) -> None:
        self.engine.dispose()

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def quick_check(self, _connection: Connection) -> list[str]:
        return []

    def full_check(self, _connection: Connection) -> list[str]:
        return []

    def settle(self, _connection: Connection, _head: Head) -> None:
        pass

    def acknowledge(self, _head: Head) -> None:
        pass

    def damaged(self, what: str) -> StoreFailure:
        return StoreBroken(
            f"{self.where} is damaged: {what}",
            "Keep a copy of the server's data directory, then restore the newest pg_dump or base backup.",
        )

    def failure(self, error: BaseException | None) -> StoreFailure:
        reason = next(iter(str(error).splitlines()), "no reason given")
        state: str = getattr(error, "sqlstate", None) or ""
        if state == DISK_FULL:
            return StoreFull(
                f"The disk of {self.where} is full", "Free some space; nothing was lost or half written."
            )
        if not state or state.startswith(("08", "53", "57P")) or state == READ_ONLY:
            return StoreAway(
                f"{self.where} does not answer: {reason}",
                "Check that the server runs, is reachable and accepts writes.",
            )
        return StoreBroken(f"{self.where} failed: {reason} ({state})", "See the server's log for the reason.")

    def backup(self, _connection: Connection, _path: Path) -> None:
        raise StoreRefused(
            f"{self.where} is a server with backups of its own",
            "Use pg_dump or pg_basebackup, and note the entry and hash that 'corral admin verify' "
            "prints: after a restore, the journal must still contain this entry.",
        )
