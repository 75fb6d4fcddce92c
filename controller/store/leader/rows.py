"""The rows of the database schema `corral_control`: the leader, and all controllers. All times are those of
the database's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from controller.store.errors import StoreRefused
from controller.store.leader.holder import session_name, shown

ONE = "controller"
"""The name of the only row of the table `leader`."""
MAKING = 0x636F7272616D
"""The number of the advisory lock that a controller holds while it makes the tables of this schema."""
FORGOTTEN_S = 3600.0
"""Seconds after which a controller that no longer reports is deleted from the list."""

# Read the table pg_class, because to_regclass() may answer from a cache of the session.
_MADE = text(
    "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace "
    "WHERE nspname = 'corral_control' AND relname = 'controllers')"
)
_FOREIGN = text(
    "SELECT count(*) > 0 AND NOT bool_or(table_name = 'alembic_version') "
    "FROM information_schema.tables WHERE table_schema = current_schema()"
)
# The unique index contains the epoch. Therefore a change of the epoch conflicts with FOR KEY SHARE, the lock
# of `PROVE`, while a renewal, which changes only the time, does not. So a take-over waits for an open commit
# of the former leader, and a long commit does not delay a renewal.
_MAKE = (
    "CREATE SCHEMA IF NOT EXISTS corral_control",
    "CREATE TABLE corral_control.leader (name text NOT NULL, holder text NOT NULL, epoch bigint NOT NULL, "
    "expires_at timestamptz NOT NULL, address text NOT NULL, accepted text NOT NULL DEFAULT '')",
    "CREATE UNIQUE INDEX leader_name ON corral_control.leader (name)",
    "CREATE UNIQUE INDEX leader_epoch ON corral_control.leader (name, epoch)",
    "CREATE TABLE corral_control.controllers (holder text PRIMARY KEY, address text NOT NULL, "
    "version text NOT NULL, seq bigint NOT NULL, since timestamptz NOT NULL, seen_at timestamptz NOT NULL)",
    "INSERT INTO corral_control.leader (name, holder, epoch, expires_at, address) "
    "VALUES ('controller', '', 0, to_timestamp(0), '')",
)
_FORMER_VERSION = text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' "
    "AND granted AND (classid::bigint << 32) + objid::bigint = 109330312618348 LIMIT 1"
)
_READ = text(
    "SELECT holder, epoch, address, accepted, extract(epoch FROM expires_at - clock_timestamp())::float8 "
    "FROM corral_control.leader WHERE name = :name"
)
_TAKE = text(
    "UPDATE corral_control.leader SET holder = :holder, epoch = epoch + 1, address = :address, "
    "expires_at = clock_timestamp() + make_interval(secs => :lease_s) "
    "WHERE name = :name AND (expires_at < clock_timestamp() OR holder = :ended) RETURNING epoch"
)
_END_SESSIONS = text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND starts_with(application_name, :name)"
)
_RENEW = text(
    "UPDATE corral_control.leader "
    "SET expires_at = clock_timestamp() + make_interval(secs => :lease_s), address = :address "
    "WHERE name = :name AND holder = :holder AND epoch = :epoch RETURNING epoch"
)
_RELEASE = text(
    "UPDATE corral_control.leader SET expires_at = to_timestamp(0) "
    "WHERE name = :name AND holder = :holder AND epoch = :epoch"
)
_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())::float8")
_PROVE = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :idle_ms, true), "
    "set_config('synchronous_commit', 'on', true) FROM corral_control.leader "
    "WHERE name = :name AND holder = :holder AND epoch = :epoch FOR KEY SHARE"
)
_REPORT = text(
    "INSERT INTO corral_control.controllers (holder, address, version, seq, since, seen_at) "
    "VALUES (:holder, :address, :version, :seq, clock_timestamp(), clock_timestamp()) "
    "ON CONFLICT (holder) DO UPDATE SET address = excluded.address, seq = excluded.seq, "
    "seen_at = excluded.seen_at"
)
_FORGET = text(
    "DELETE FROM corral_control.controllers WHERE holder = :holder "
    "OR seen_at < clock_timestamp() - make_interval(secs => :forgotten_s)"
)
_LIST = text(
    "SELECT holder, address, version, seq, extract(epoch FROM since)::float8, "
    "extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM corral_control.controllers ORDER BY since"
)
_ACCEPT = text(
    "UPDATE corral_control.leader SET epoch = greatest(epoch, :epoch) + 1, holder = '', "
    "expires_at = to_timestamp(0), accepted = (greatest(epoch, :epoch) + 1)::text || ' ' || :head "
    "WHERE name = :name AND expires_at < clock_timestamp() RETURNING epoch"
)


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """The row of the leader. `left_s` are the seconds until its lease ends; 0 or less if no controller leads.

    `accepted` is set by `corral admin accept-loss`: the new epoch, and the newest journal entry at that time.
    """

    holder: str
    epoch: int
    address: str
    accepted: str
    left_s: float


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """A controller that reports to the database. `seen_s` are the seconds since its last report."""

    holder: str
    address: str
    version: str
    seq: int
    since: float
    seen_s: float


def clock_s(connection: Connection) -> float:
    """Return the clock of the database server in seconds since 1970."""
    with connection.begin():
        return float(connection.scalar(_CLOCK) or 0.0)


def made(connection: Connection) -> bool:
    """Return whether the tables of the schema `corral_control` exist."""
    return bool(connection.scalar(_MADE))


def make(connection: Connection, where: str) -> None:
    """Make the tables of the schema `corral_control` if they do not exist. Raise StoreRefused if the database
    belongs to another program.
    """
    with connection.begin():
        if connection.scalar(_MADE):
            return
        if connection.scalar(_FOREIGN):
            raise StoreRefused(
                f"{where} holds the tables of another program", "Give Corral a database of its own."
            )
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MAKING})
        if connection.scalar(_MADE):
            return
        for statement in _MAKE:
            connection.execute(text(statement))


def read(connection: Connection) -> LeaderRow | None:
    """Return the row of the leader; None if no controller has ever led."""
    with connection.begin():
        row = connection.execute(_READ, {"name": ONE}).one_or_none()
    return None if row is None or not row.epoch else LeaderRow(*row)


def former_version(connection: Connection) -> str:
    """Return the name of a controller of an earlier version that uses this database; "" if there is none.
    Controllers of earlier versions hold an advisory lock instead of a lease.
    """
    with connection.begin():
        return str(connection.scalar(_FORMER_VERSION) or "")


def take(connection: Connection, holder: str, address: str, lease_s: float, ended: str) -> int | None:
    """Take the leadership if the lease has ended, or if the leader is the process `ended`, which does not run
    any more. Return the new epoch; None if another controller leads.
    """
    values = {"name": ONE, "holder": holder, "address": address, "lease_s": lease_s, "ended": ended}
    with connection.begin():
        epoch: int | None = connection.scalar(_TAKE, values)
        return epoch


def end_sessions(connection: Connection, holder: str) -> None:
    """End the sessions of a former leader, because one of them may be in the middle of a commit and keep the
    row of the leader locked. A stopped process does not end its commit.
    """
    with connection.begin():
        connection.execute(_END_SESSIONS, {"name": session_name(holder)})


def renew(connection: Connection, holder: str, epoch: int, address: str, lease_s: float) -> bool:
    """Extend the lease. Return False if another controller has taken the leadership."""
    values = {"name": ONE, "holder": holder, "epoch": epoch, "address": address, "lease_s": lease_s}
    with connection.begin():
        return connection.scalar(_RENEW, values) is not None


def release(connection: Connection, holder: str, epoch: int) -> None:
    """End the lease now, so that another controller can take over at once."""
    with connection.begin():
        connection.execute(_RELEASE, {"name": ONE, "holder": holder, "epoch": epoch})


def prove(connection: Connection, holder: str, epoch: int, idle_s: float) -> bool:
    """In the open transaction of a commit: return whether this controller still leads, and keep the epoch
    from changing until the transaction ends. If the controller stops in the middle of the transaction, the
    server ends the transaction after `idle_s` seconds.
    """
    values = {"name": ONE, "holder": holder, "epoch": epoch, "idle_ms": f"{int(idle_s * 1000)}ms"}
    return connection.execute(_PROVE, values).one_or_none() is not None


def report(connection: Connection, holder: str, address: str, version: str, seq: int) -> None:
    """Write that this controller runs, and up to which journal entry it has followed."""
    values = {"holder": holder, "address": address, "version": version, "seq": seq}
    with connection.begin():
        connection.execute(_REPORT, values)


def forget(connection: Connection, holder: str) -> None:
    """Delete this controller from the list, and all controllers without a report for FORGOTTEN_S."""
    with connection.begin():
        connection.execute(_FORGET, {"holder": holder, "forgotten_s": FORGOTTEN_S})


def controllers(connection: Connection) -> list[ControllerRow]:
    """Return all controllers that report, in the order of their starts."""
    with connection.begin():
        return [ControllerRow(*row) for row in connection.execute(_LIST)]


def accept(transaction: Connection, epoch: int, head: str, where: str) -> int:
    """In the open transaction: raise the epoch above `epoch`, and record `head`, the newest journal entry.
    The loss of later entries is thus accepted. Return the new epoch. Raise StoreRefused if a controller
    leads.
    """
    found = transaction.scalar(_ACCEPT, {"name": ONE, "epoch": epoch, "head": head})
    if found is None:
        leads = transaction.execute(_READ, {"name": ONE}).one_or_none()
        raise StoreRefused(
            f"a controller ({shown(leads.holder) if leads else 'none'}) leads {where}",
            "Stop all controllers of this database first.",
        )
    return int(found)
