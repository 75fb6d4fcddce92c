"""Changes the tables of a database to those of this version of Corral. Refuses databases of newer versions
and of other programs."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, inspect

from controller.store import tables
from controller.store.errors import StoreRefused

MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(connection: Connection, where: str) -> None:
    """Run all missing migrations in one transaction. A new store also gets its id."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    with connection.begin():
        found = MigrationContext.configure(connection).get_current_revision()
        if found == newest:
            return
        if found is None and inspect(connection).get_table_names():
            raise StoreRefused(
                f"{where} holds the tables of another program", "Give Corral a database of its own."
            )
        if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
            raise StoreRefused(
                f"{where} was written by a newer Corral (tables {found}; this one knows up to {newest})",
                "Start the newer version again, or restore a backup made before the upgrade.",
            )
        command.upgrade(config, "head")
        if found is None:
            facts = {"id": uuid.uuid4().hex, "created_at": repr(time.time())}
            connection.execute(
                insert(tables.meta), [{"name": name, "value": value} for name, value in facts.items()]
            )
