"""Changes the tables of the store to the newest version with the library Alembic. There is no file
alembic.ini, because the module controller.store.migrate passes the database connection.
"""

from __future__ import annotations

from alembic import context

# Run all table changes in one transaction, because without it a failed migration would leave SQLite tables
# half migrated.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
