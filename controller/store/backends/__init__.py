"""Where a store lives: one SQLite file or a PostgreSQL server."""
