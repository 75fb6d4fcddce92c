"""Reads the table `meta` and the newest journal entries when a store is opened, and checks the entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select

from controller.store import chain, records, tables
from controller.store.backends.backend import Backend
from controller.store.chain import ChainBroken, Head

TAIL = 1_000
"""Number of the newest journal entries whose hash chain is checked whenever the store is opened. verify()
checks all entries."""


def read_meta(place: Backend, connection: Connection) -> dict[str, str]:
    """Return the rows of the table `meta`, such as the id of the store, as a dictionary. Raise a StoreFailure
    if they are missing.
    """
    with _transaction(connection):
        meta = {row.name: row.value for row in connection.execute(select(tables.meta))}
    if "id" not in meta:
        raise place.damaged("the table meta has lost its rows")
    return meta


def find_head(place: Backend, connection: Connection, start: Head) -> Head:
    """Check the hash chain of the last TAIL journal entries. Return the number and hash of the newest entry.
    Raise a StoreFailure if an entry does not fit.

    `start` precedes the first journal entry that is not deleted.
    """
    newest = records.ENTRIES.order_by(tables.journal.c.seq.desc()).limit(TAIL + 1)
    with _transaction(connection):
        tail = [records.read_entry(row) for row in connection.execute(newest)][::-1]
    if len(tail) > TAIL:
        before, digest = tail.pop(0)
        start = Head(before.seq, digest)
    head = chain.follow(start, tail)
    if isinstance(head, ChainBroken):
        raise place.damaged(head.how)
    return head


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """Context manager that uses the open transaction of the connection, or begins a new transaction."""
    if connection.in_transaction():
        yield
    else:
        with connection.begin():
            yield
