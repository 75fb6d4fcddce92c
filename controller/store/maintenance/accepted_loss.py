"""Accepts that a PostgreSQL database lacks journal entries that were acknowledged, so that a controller can
use the database again.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from controller.store.backends.backend_of_url import backend_of
from controller.store.backends.postgres import PostgresServer
from controller.store.errors import StoreFailure, StoreRefused
from controller.store.leader import rows
from controller.store.tables import journal


def accept_loss(url: str, epoch: int = 0) -> tuple[int, int]:
    """Let the journal of this database continue after its last entry. Return the number of this entry, and
    the new epoch. Raise StoreRefused if a controller leads, or if the store is not on PostgreSQL.

    The new epoch is greater than that of the database and than `epoch`. Hosts and agents then ignore the
    entries that they remember from earlier epochs.
    """
    place = backend_of(url)
    if not isinstance(place, PostgresServer):
        raise StoreRefused(
            f"{place.where} is not a PostgreSQL database",
            "Use 'corral admin restore --accept-loss' for a file.",
        )
    try:
        with place.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            if not rows.made(connection):
                raise StoreRefused(f"no controller has used {place.where} yet", "Start a controller.")
            connection.rollback()
            newest = select(journal.c.seq, journal.c.hash).order_by(journal.c.seq.desc()).limit(1)
            with connection.begin():
                last = connection.execute(newest).one_or_none()
            head = f"{last.seq} {last.hash.hex()}" if last is not None else "0 -"
            return (last.seq if last is not None else 0), rows.accept(connection, epoch, head, place.where)
    except DBAPIError as error:
        failure: StoreFailure = place.failure(error.orig)
        raise StoreRefused(failure.message, failure.hint) from error
    finally:
        place.engine.dispose()
