"""Chooses the backend for a database URL: a SQLite file or a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from controller.store.backends.backend import Backend
from controller.store.backends.postgres import PostgresServer
from controller.store.backends.sqlite import SqliteFile
from controller.store.errors import StoreRefused


def backend_of(url: str, memory: Path | None = None) -> Backend:
    """Return the backend for a database URL. Raise StoreRefused if the URL is not a valid URL of SQLite or
    PostgreSQL. `memory` is the file in which this host remembers the newest journal entry of a PostgreSQL
    database."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.get_backend_name() == "sqlite":
        return SqliteFile(parsed)
    if parsed is not None and parsed.get_backend_name() == "postgresql":
        return PostgresServer(parsed, memory)
    raise StoreRefused(
        "The database's URL is not one that Corral knows",
        "Write sqlite:////absolute/path/to/corral.db or postgresql://user@host/database.",
    )
