"""Reads the journal of a controller, even while the controller runs. The database is opened read-only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError

from controller.core.model.events.event import Event
from controller.core.model.events.kinds import event_of
from controller.core.model.rows import JournalEntry
from controller.sim.errors import SimulationRefused
from controller.store import chain, records, tables
from controller.store.backends.postgres import PostgresServer
from controller.store.chain import ChainBroken
from controller.store.errors import StoreFailure
from controller.store.maintenance import retention
from wire.codec import Malformed

AT_ONCE = 2_000


class JournalRefused(SimulationRefused):
    """Raised if the journal cannot be replayed. The message names the journal and the reason, `hint` the
    remedy."""


def read_journal(url: str, progress: Callable[[int, int], None] | None = None) -> list[Event]:
    """Return all events in order. `progress` is called with the number of entries read so far and the number
    of all entries."""
    engine, where = _reach(url)
    with _failures(where), engine.connect() as connection, connection.begin():
        head = chain.genesis(_name_of(connection, where))
        last = connection.scalar(select(func.max(tables.journal.c.seq))) or 0
        if not last:
            raise JournalRefused(
                f"the journal in {where} is empty", "The controller has recorded no event yet."
            )
        base = retention.read_base({row.name: row.value for row in connection.execute(select(tables.meta))})
        if base is not None:
            raise JournalRefused(
                f"the journal in {where} begins after entry {base.seq}: retention has deleted the "
                "earlier entries, and a replay needs all entries",
                "Replay an older backup. To keep the journal from now on: [retention] journal_days = 0 "
                "and journal_entries = 0.",
            )
        found: list[Event] = []
        for entries in _batches(connection):
            after = chain.follow(head, entries)
            if isinstance(after, ChainBroken):
                raise JournalRefused(
                    f"the journal in {where} is damaged: {after.how}",
                    "Restore a backup, or restart the controller, which then checks its store.",
                )
            head = after
            found += [_event(entry, where) for entry, _ in entries]
            if progress is not None:
                progress(len(found), last)
    engine.dispose()
    return found


def _batches(connection: Connection) -> Iterator[Sequence[tuple[JournalEntry, bytes]]]:
    rows = connection.execution_options(yield_per=AT_ONCE).execute(
        records.ENTRIES.order_by(tables.journal.c.seq)
    )
    for part in rows.partitions():
        yield [records.read_entry(row) for row in part]


def _event(entry: JournalEntry, where: str) -> Event:
    try:
        return event_of(entry.kind, entry.body)
    except (KeyError, Malformed):
        raise JournalRefused(
            f"entry {entry.seq} of the journal in {where} is a {entry.kind} that this version cannot read",
            "Another version of Corral has written the journal: replay it with that version.",
        ) from None


def url_of(word: str) -> str:
    """Return the database URL of a journal. `word` is what the user typed: a state directory, a database file
    or a URL.
    """
    if "://" in word:
        return word
    path = Path(word)
    return f"sqlite:///{os.path.abspath(path / 'corral.db' if path.is_dir() else path)}"


def _reach(url: str) -> tuple[Engine, str]:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise JournalRefused(
            "the journal's URL is not one of a database",
            "Write sqlite:////absolute/path/to/corral.db or postgresql://user@host/database.",
        ) from None
    if parsed.get_backend_name() == "sqlite":
        path = Path(parsed.database or "")
        if not path.is_file():
            raise JournalRefused(
                f"there is no journal in {path}",
                "Name the state directory of a controller, its corral.db, or the URL of its store.",
            )
        return create_engine("sqlite://", creator=lambda: _open(path)), str(path)
    if parsed.get_backend_name() == "postgresql":
        try:
            server = PostgresServer(parsed)
        except StoreFailure as failure:
            raise JournalRefused(failure.message, failure.hint) from None
        return server.engine.execution_options(postgresql_readonly=True), server.where
    raise JournalRefused(
        f"{parsed.get_backend_name()} is not a database that Corral knows",
        "Write sqlite:////absolute/path/to/corral.db or postgresql://user@host/database.",
    )


def _open(path: Path) -> sqlite3.Connection:
    """Open the SQLite database of a journal read-only.

    A database without a write-ahead log is opened as immutable. Without this option, SQLite would create a
    log that belongs to the current user, and the controller might then fail to open the database.
    """
    log = Path(f"{path}-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{mode}", uri=True, check_same_thread=False)


def _name_of(connection: Connection, where: str) -> str:
    """Return the id of the store, on which the hash of the first journal entry depends. Raise JournalRefused
    if the database is not a store of Corral.
    """
    facts: dict[str, Any] = {}
    try:
        facts = {row.name: row.value for row in connection.execute(select(tables.meta))}
    except DBAPIError as error:
        if not str(error.orig).startswith(("no such table", 'relation "meta"')):
            raise
    if "id" not in facts:
        raise JournalRefused(f"{where} holds no journal of Corral", "Is it the right database?")
    return str(facts["id"])


@contextmanager
def _failures(where: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        reason = next(iter(str(error.orig).splitlines()), "no reason given")
        raise JournalRefused(f"the journal in {where} cannot be read: {reason}", _HINT) from None
    except (OSError, UnicodeDecodeError) as error:
        raise JournalRefused(f"the journal in {where} cannot be read: {error}", _HINT) from None


_HINT = "Check that it is the right database, and that you may read it."
