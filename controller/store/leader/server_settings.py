"""Checks the settings of a PostgreSQL server on which acknowledged jobs depend."""

from __future__ import annotations

from sqlalchemy import Connection, text

_SETTINGS = text(
    "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), "
    "(SELECT count(*) FROM pg_stat_replication)"
)

_LIMITS = text(
    "SELECT set_config('statement_timeout', '2500', true), set_config('lock_timeout', '2500', true)"
)


def limit_time(transaction: Connection) -> None:
    """Let each statement of the open transaction take at most 2.5 seconds. The limit belongs to the
    transaction, because a pooler refuses settings for a connection, or gives the session to another client.
    """
    transaction.execute(_LIMITS)


def is_standby(connection: Connection) -> bool:
    """Return whether the server only follows another server, so that it cannot be written."""
    with connection.begin():
        return bool(connection.scalar(text("SELECT pg_is_in_recovery()")))


def warnings(connection: Connection) -> list[str]:
    """Return a sentence for each setting with which acknowledged jobs can be lost."""
    with connection.begin():
        fsync, pages, commit, named, standbys = connection.execute(_SETTINGS).one()
    found = []
    if fsync != "on":
        found.append("fsync is off: a power failure of the server can lose or damage acknowledged jobs")
    if pages != "on":
        found.append("full_page_writes is off: a power failure of the server can damage the database")
    if commit != "on" and commit != "remote_apply":
        found.append(f"synchronous_commit is {commit} by default: only Corral's own commits set it to on")
    if standbys and not named:
        found.append(
            "the server has a standby server, but synchronous_standby_names is empty: a standby that is "
            "promoted can lack the newest acknowledged jobs"
        )
    return found
