"""Runs migrations on the connection that controller.store.schema hands over; there is no alembic.ini."""

from __future__ import annotations

from alembic import context

# Use transactional_ddl: without it, a failed migration would leave the SQLite tables half migrated.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
