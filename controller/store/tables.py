"""The tables as every statement sees them; migrations/ holds how they came to be."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

# SQLite keeps rows in order of an INTEGER PRIMARY KEY, and of no other spelling of it.
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

# Every index is paid for on each commit, so there are four: the history of one job, live jobs (NULL) and the
# newest ended ones, a retried submit, an array's elements. A list of a user's old jobs walks the primary key.
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
