"""Migration 1 creates the first tables: journal, jobs, nodes and meta."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "journal",
        sa.Column("seq", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job", NUMBER),
        sa.Column("node", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("array", NUMBER),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("origin_seal", NUMBER, nullable=False),
        sa.Column("seal", NUMBER, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("seal", NUMBER, nullable=False),
    )
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("journal_of_job", "journal", ["job", "seq"])
    op.create_index("jobs_by_end", "jobs", ["ended_at"])
    has_key, has_array = sa.text("key <> ''"), sa.text('"array" IS NOT NULL')
    op.create_index("jobs_by_key", "jobs", ["user", "key"], sqlite_where=has_key, postgresql_where=has_key)
    op.create_index("jobs_of_array", "jobs", ["array"], sqlite_where=has_array, postgresql_where=has_array)
