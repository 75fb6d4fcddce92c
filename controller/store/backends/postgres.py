"""A store on a PostgreSQL server. Several controllers can use the database, and one of them leads: it holds a
lease, and proves in each transaction that it still leads.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, select
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.pool import NullPool

from controller.store.chain import Head
from controller.store.errors import StoreAway, StoreBroken, StoreFailure, StoreFull, StoreRefused, StoreStale
from controller.store.leader import rows, server_settings
from controller.store.leader.holder import (
    has_ended,
    holder_of_this_process,
    pid_and_host,
    session_name,
    shown,
)
from controller.store.leader.lease import LEASE_S, Lease
from controller.store.leader.remembered import HeadMemory, is_lost
from controller.store.tables import journal

WAIT_S = 0.2
"""Seconds between two checks of another controller's lease."""
DISK_FULL = "53100"
PASSING = ("25006", "25P03", "55P03")
"""The error codes (SQLSTATE) of failures that can end without an operator: a write to a standby server or to
a server in read-only mode, a transaction that was left open too long, and a lock that was not free in time.
"""


class PostgresServer:
    """A database on a PostgreSQL server. The server itself makes commits durable (fsync, write-ahead log).

    One controller leads and writes (leader/lease.py). The other controllers follow. `memory` is the file with
    the newest journal entry that this host has seen; None if this host keeps no such file.
    """

    def __init__(self, url: URL, memory: Path | None = None) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise StoreRefused(
                "PostgreSQL needs the package psycopg, which is not installed",
                f"Install it for this Python: {sys.executable} -m pip install 'psycopg[binary]>=3.2'",
            )
        self.where = url.render_as_string(hide_password=True)
        holder = holder_of_this_process()
        since = time.strftime("%Y-%m-%d %H:%M")
        arguments = {
            "connect_timeout": 10,
            # Send keepalives to detect a broken network. Without keepalives, a lost connection would stay
            # open for hours.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,
            "application_name": f"{session_name(holder)} since {since}",
            # Do not prepare statements on the server, because a pooler in transaction mode may give each
            # transaction another session, which does not know statements of earlier sessions.
            "prepare_threshold": None,
        }
        url = url.set(drivername="postgresql+psycopg")
        self.engine = create_engine(
            url,
            isolation_level="REPEATABLE READ",  # Each reader gets a consistent snapshot.
            connect_args=arguments,
        )
        # Use short timeouts for the connection of the lease, so that the next renewal can use another
        # connection.
        quick = {
            "connect_timeout": 2,
            "tcp_user_timeout": 2_500,
            "application_name": f"corral lease of {shown(holder)}",
        }
        leasing = create_engine(
            url, poolclass=NullPool, isolation_level="READ COMMITTED", connect_args={**arguments, **quick}
        )
        self._memory = None if memory is None else HeadMemory(memory)
        self.warnings: Sequence[str] = ()
        self._lease = Lease(leasing, holder)
        event.listen(leasing, "engine_connect", self._refuse_standby_server)
        event.listen(leasing, "begin", server_settings.limit_time)

    @property
    def lease(self) -> Lease | None:
        return self._lease

    def open(self) -> Connection:
        """Become the leader, and connect for writing. If another controller holds the lease, wait for the end
        of the lease. Raise StoreRefused if that controller renews the lease meanwhile, because the controller
        then still runs.
        """
        before = self._lease.leader() if self._made() else None
        deadline = time.monotonic() + LEASE_S + 1
        while (writer := self.try_open()) is None:
            now = self._lease.leader()
            runs = now is not None and (
                before is None
                or now.epoch != before.epoch
                or now.left_s > before.left_s
                or _is_here(now.holder)
            )
            if now is None or runs or time.monotonic() > deadline:
                owner = shown(now.holder) if now is not None else "just starting"
                raise StoreRefused(
                    f"Another controller ({owner}) owns {self.where}",
                    "Stop it first, or give this controller a database of its own.",
                )
            before = now
            time.sleep(WAIT_S)
        return writer

    def try_open(self) -> Connection | None:
        self._made()
        if not self._lease.take():
            return None
        self._lease.begin()
        try:
            return self._connect()
        except BaseException:
            self._lease.give_up()
            raise

    def reopen(self) -> Connection:
        self.engine.dispose()
        if not self._lease.keep():
            now = self._lease.leader()
            owner = shown(now.holder) if now is not None else "just starting"
            raise StoreRefused(
                f"Another controller ({owner}) has led {self.where} since",
                "This controller stops. Start it again as a standby.",
            )
        return self._connect()

    def check_lease(self) -> None:
        if not self._lease.may_act:
            raise StoreAway(
                f"The lease on {self.where} could not be renewed, so another controller may take over",
                "Check that the server runs, is reachable and accepts writes.",
            )

    def prove(self, transaction: Connection) -> None:
        if not self._lease.prove(transaction):
            raise StoreStale(
                f"Another controller has taken over {self.where}",
                "This controller has written nothing since, and stops. Start it again as a standby.",
            )

    def _made(self) -> bool:
        """Make the tables of the leadership if they do not exist. Return True."""
        with self.engine.connect() as connection:
            if not rows.made(connection.execution_options(isolation_level="READ COMMITTED")):
                connection.rollback()
                rows.make(connection, self.where)
        return True

    def _connect(self) -> Connection:
        # Use READ COMMITTED, because the statement that proves the epoch must see the newest epoch.
        writer = self.engine.connect().execution_options(isolation_level="READ COMMITTED")
        self.warnings = server_settings.warnings(writer)
        return writer

    def _refuse_standby_server(self, connection: Connection) -> None:
        if server_settings.is_standby(connection):
            raise StoreAway(
                f"{self.where} is a standby server of PostgreSQL, which cannot be written",
                "Name the primary server in [store] url, or promote the standby server.",
            )

    def reader(self) -> Engine:
        return self.engine.execution_options(postgresql_readonly=True)

    def close(self) -> None:
        """Close all connections. If this controller leads, another controller can take over at once."""
        self._lease.close()
        self.engine.dispose()
        if self._memory is not None:
            self._memory.close()

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def quick_check(self, _connection: Connection) -> list[str]:
        return []

    def full_check(self, _connection: Connection) -> list[str]:
        return []

    def settle(self, connection: Connection, head: Head) -> None:
        entry = self._memory.read() if self._memory is not None else None

        def hash_of(seq: int) -> str:
            with connection.begin():
                found = connection.scalar(select(journal.c.hash).where(journal.c.seq == seq))
            return found.hex() if found is not None else ""

        with connection.begin():
            first = connection.scalar(select(journal.c.seq).order_by(journal.c.seq).limit(1))
        if entry is not None and is_lost(entry, self._lease.accepted, (first or 1) - 1, hash_of):
            raise went_back(self.where, f"this host has stored the journal up to entry {entry.seq}", head.seq)
        self.acknowledge(head)

    def acknowledge(self, head: Head) -> None:
        self._lease.seq = head.seq
        if self._memory is not None:
            self._memory.write(self._lease.epoch, head)

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
        if not state or state.startswith(("08", "40", "53", "57")) or state in PASSING:
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


def went_back(where: str, remembered: str, seq: int) -> StoreRefused:
    """Return the error about a database that lacks an acknowledged journal entry. `remembered` is a phrase
    about this entry; `seq` is the number of the newest entry in the database.
    """
    return StoreRefused(
        f"{where} went back in time: {remembered}, and the database does not have this entry (its journal "
        f"ends at {seq}). An old backup was restored, or a standby server that lagged behind was promoted",
        "Restore the newest database. If it is lost, run 'corral admin accept-loss' with all controllers "
        "stopped; the changes in the missing entries are then lost.",
    )


def _is_here(holder: str) -> bool:
    """Return whether this is the name of a process that runs on this host."""
    return pid_and_host(holder)[1] == pid_and_host(holder_of_this_process())[1] and not has_ended(holder)
