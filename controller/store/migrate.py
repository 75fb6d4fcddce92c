"""Changes the tables of a database to those of this version of Corral. Refuses databases of newer versions
and of other programs.

1. A database without tables gets the tables of `tables.py`, and the number of the newest migration.
2. A database with the number of the newest migration stays unchanged.
3. In all other databases of Corral, Alembic runs the missing migrations.

Alembic is imported only in step 3, because the import takes 80 ms.

Invariant: the tables of step 1 equal the tables that the migrations make. tests/contract/test_stores.py
compares both.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from controller.store import tables
from controller.store.errors import StoreRefused

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = "0004"
"""The number of the newest migration."""

_version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""The table in which Alembic keeps the number of the last migration."""


def is_newest(connection: Connection) -> bool:
    """Return whether the database has the tables of this version of Corral."""
    with connection.begin():
        present = inspect(connection).get_table_names()
        return _version.name in present and connection.scalar(select(_version.c.version_num)) == NEWEST


def migrate(
    connection: Connection, where: str, prove: Callable[[Connection], None] = lambda _connection: None
) -> None:
    """Create the tables and the id of a new store, or run all missing migrations in an older store, in one
    transaction. Raise StoreRefused for the database of another program or of a newer version of Corral.
    `prove` is called first in the transaction; it raises an error if another controller has become the
    leader.
    """
    with connection.begin():
        prove(connection)
        present = inspect(connection).get_table_names()
        if not present:
            tables.metadata.create_all(connection, checkfirst=False)
            _version.create(connection)
            connection.execute(insert(_version), {"version_num": NEWEST})
            facts = {"id": uuid.uuid4().hex, "created_at": repr(time.time())}
            connection.execute(
                insert(tables.meta), [{"name": name, "value": value} for name, value in facts.items()]
            )
            return
        found = connection.scalar(select(_version.c.version_num)) if _version.name in present else None
        if found is None:
            raise StoreRefused(
                f"{where} holds the tables of another program", "Give Corral a database of its own."
            )
        if found != NEWEST:
            run_migrations(connection, found, where)


def run_migrations(connection: Connection, found: str | None, where: str) -> None:
    """Run the migrations after the migration `found`; all migrations if `found` is None. Raise StoreRefused
    if `found` belongs to a newer version of Corral.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreRefused(
            f"{where} was written by a newer Corral (tables {found}; this one knows up to {NEWEST})",
            "Start the newer version again, or restore a backup made before the upgrade.",
        )
    command.upgrade(config, "head")
