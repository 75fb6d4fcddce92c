"""Changes the tables of the store to the newest version with the library Alembic. The module
controller.store.schema passes the database connection, so there is no file alembic.ini.
"""

from __future__ import annotations

from alembic import context

# Run all table changes in one transaction: otherwise a failed migration would leave SQLite tables half
# migrated.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
