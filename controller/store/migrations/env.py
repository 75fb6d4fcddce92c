"""Runs the migrations of alembic on the connection of controller.store.schema. There is no alembic.ini."""

from __future__ import annotations

from alembic import context

# Run all table changes in one transaction: otherwise a failed migration would leave SQLite tables half
# migrated.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
