"""Accepts that a PostgreSQL database lacks journal entries that were acknowledged, so that a controller can
use the database again.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import DBAPIError

from controller.store.backends.backend_of_url import backend_of
from controller.store.backends.postgres import PostgresServer
from controller.store.errors import StoreFailure, StoreRefused
from controller.store.leader import rows
from controller.store.loading import SKIPPED, read_skipped
from controller.store.maintenance.retention import NEXT_JOB, write_meta
from controller.store.tables import jobs, journal, meta

LOST_IDS = 100_000
"""The most job ids that the missing entries are assumed to have given."""
LOST_ATTEMPTS = 1_000
"""The most attempts of one job that the missing entries are assumed to have started."""
ROUND_IDS = 1_000
"""The next job id is rounded up to a multiple of this number, so that the gap is easy to recognise."""


def accept_loss(url: str, epoch: int = 0) -> tuple[int, int]:
    """Let the journal of this database continue after its last entry. Return the number of this entry, and
    the new epoch. Raise StoreRefused if a controller leads, or if the store is not on PostgreSQL.

    The new epoch is greater than that of the database and than `epoch`. Hosts and agents then ignore the
    entries that they remember from earlier epochs. Ids of jobs and numbers of attempts continue far behind
    those in the database, because users and nodes may know ids and numbers that were lost.
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
                raised = rows.accept(connection, epoch, head, place.where)
                _skip_numbers(connection)
            return (last.seq if last is not None else 0), raised
    except DBAPIError as error:
        failure: StoreFailure = place.failure(error.orig)
        raise StoreRefused(failure.message, failure.hint) from error
    finally:
        place.engine.dispose()


def _skip_numbers(transaction: Connection) -> None:
    """Record the first job id and the first attempt number that may be given after the loss."""
    newest = transaction.execute(select(func.max(jobs.c.id), func.max(jobs.c.array))).one()
    deleted = transaction.scalar(select(meta.c.value).where(meta.c.name == NEXT_JOB))
    before = read_skipped(transaction)
    used = max(*(number or 0 for number in newest), int(deleted or 0), before.first_id)
    first_id = -(-(used + LOST_IDS) // ROUND_IDS) * ROUND_IDS
    attempt = transaction.scalar(
        select(func.max(text("(body::jsonb ->> 'attempt')::bigint"))).select_from(jobs)
    )
    first_attempt = max(attempt or 0, before.first_attempt) + LOST_ATTEMPTS
    write_meta(transaction, SKIPPED, f"{first_id} {first_attempt}")
