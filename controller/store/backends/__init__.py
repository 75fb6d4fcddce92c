"""The databases that can hold a store: one SQLite file or a PostgreSQL server."""
