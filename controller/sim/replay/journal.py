"""The journal of a real controller, read beside it: nothing is written, nothing is locked for long."""

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

from controller.core.events import Event, event_of
from controller.core.rows import Entry
from controller.sim.refusal import SimulationRefused
from controller.store import chain, records, tables
from controller.store.chain import Broken
from controller.store.failures import StoreFailure
from controller.store.postgres import PostgresServer
from wire.codec import Malformed

AT_ONCE = 2_000


class JournalRefused(SimulationRefused):
    """The journal cannot be replayed: where it is, why, and what to do about it."""


def read_journal(url: str, progress: Callable[[int, int], None] | None = None) -> list[Event]:
    """Everything that ever happened, in order. `progress` is told how many of how many entries are read."""
    engine, where = _reach(url)
    with _failures(where), engine.connect() as connection, connection.begin():
        head = chain.genesis(_name_of(connection, where))
        last = connection.scalar(select(func.max(tables.journal.c.seq))) or 0
        if not last:
            raise JournalRefused(f"the journal in {where} is empty", "Nothing has happened yet.")
        found: list[Event] = []
        for entries in _batches(connection):
            after = chain.follow(head, entries)
            if isinstance(after, Broken):
                raise JournalRefused(
                    f"the journal in {where} is damaged: {after.how}",
                    "Restore a backup, or stop the controller and let it check its store.",
                )
            head = after
            found += [_event(entry, where) for entry, _ in entries]
            if progress is not None:
                progress(len(found), last)
    engine.dispose()
    return found


def _batches(connection: Connection) -> Iterator[Sequence[tuple[Entry, bytes]]]:
    rows = connection.execution_options(yield_per=AT_ONCE).execute(
        records.ENTRIES.order_by(tables.journal.c.seq)
    )
    for part in rows.partitions():
        yield [records.read_entry(row) for row in part]


def _event(entry: Entry, where: str) -> Event:
    try:
        return event_of(entry.kind, entry.body)
    except (KeyError, Malformed):
        raise JournalRefused(
            f"entry {entry.seq} of the journal in {where} is a {entry.kind} that this version cannot read",
            "It was written by another version: replay it with that one.",
        ) from None


def url_of(word: str) -> str:
    """A journal as people name it: a state directory, a file, or a URL."""
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
    """Read-only. Without a log nobody writes, and then the file is taken as it is: opening it the other way
    would leave a log behind, owned by whoever reads, which the controller might not be allowed to open."""
    log = Path(f"{path}-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{mode}", uri=True, check_same_thread=False)


def _name_of(connection: Connection, where: str) -> str:
    """The store's id, which its chain begins with."""
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
