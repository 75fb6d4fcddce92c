"""Runs migrations on the connection that controller.store.schema hands over; there is no alembic.ini."""

from __future__ import annotations

from alembic import context

# Without transactional_ddl Alembic leaves SQLite's tables half migrated when something fails in between.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
