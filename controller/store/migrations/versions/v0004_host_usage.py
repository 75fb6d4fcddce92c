"""Migration 4 adds columns for allocated CPUs, allocated memory and peak memory to the usage tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns. Records of earlier versions have 0 in these columns, because earlier versions did not
    store these figures.
    """
    for table in ("usage", "usage_days"):
        for name, kind in (("cpu_held_s", sa.Float()), ("memory_held_s", sa.Float()), ("memory_mib", NUMBER)):
            op.add_column(table, sa.Column(name, kind, nullable=False, server_default="0"))
