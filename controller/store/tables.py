"""The tables of the store in the newest version. A new store gets these tables. The migrations change the
tables of an older store to these tables.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

# Use the type INTEGER in SQLite, because a primary key of this type needs no separate index.
Number = BigInteger().with_variant(Integer, "sqlite")

journal = Table(
    "journal",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job", Number),
    Column("node", Text),
    Column("body", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=False),
    Column("user", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("key", Text, nullable=False),
    Column("array", Number),
    Column("spec", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("origin_seal", Number, nullable=False),
    Column("seal", Number, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seal", Number, nullable=False),
)

notes = Table(
    "notes",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("seal", Number, nullable=False),
)

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# The table `usage` has one row for each node of each ended attempt.
usage = Table(
    "usage",
    metadata,
    Column("job", Number, primary_key=True, autoincrement=False),
    Column("attempt", Number, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("label", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("gpu_s", Float, nullable=False),
    Column("measured_s", Float, nullable=False),
    Column("busy_s", Float, nullable=False),
    Column("p95", Number, nullable=False),
    Column("peak_mib", Number, nullable=False),
    Column("wh", Float, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("cpu_held_s", Float, nullable=False, server_default="0"),
    Column("memory_held_s", Float, nullable=False, server_default="0"),
    Column("memory_mib", Number, nullable=False, server_default="0"),
)

# The table `usage_days` holds the usage of jobs that retention has deleted, with one row per day (UTC), user,
# project and queue. `jobs` is the number of deleted jobs that ended on the day.
usage_days = Table(
    "usage_days",
    metadata,
    Column("day", Number, primary_key=True, autoincrement=False),
    Column("user", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("queue", Text, primary_key=True),
    Column("jobs", Number, nullable=False),
    Column("gpu_s", Float, nullable=False),
    Column("measured_s", Float, nullable=False),
    Column("busy_s", Float, nullable=False),
    Column("p95", Number, nullable=False),
    Column("peak_mib", Number, nullable=False),
    Column("wh", Float, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("cpu_held_s", Float, nullable=False, server_default="0"),
    Column("memory_held_s", Float, nullable=False, server_default="0"),
    Column("memory_mib", Number, nullable=False, server_default="0"),
)

# The tables have only these five indexes, because each index makes every commit slower. The index
# `jobs_by_end` also finds jobs that have not ended, because their end is NULL. Without an index by user, a
# list of the ended jobs of one user reads the jobs of all users.
Index("journal_of_job", journal.c.job, journal.c.seq)
Index("jobs_by_end", jobs.c.ended_at)
Index(
    "jobs_by_key",
    jobs.c.user,
    jobs.c.key,
    sqlite_where=jobs.c.key != "",
    postgresql_where=jobs.c.key != "",
)
Index(
    "jobs_of_array",
    jobs.c.array,
    sqlite_where=jobs.c.array.is_not(None),
    postgresql_where=jobs.c.array.is_not(None),
)
Index("usage_by_end", usage.c.until)
