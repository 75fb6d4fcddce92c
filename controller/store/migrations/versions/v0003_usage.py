"""Migration 3 creates the usage tables: a row per attempt and node, and a row per day for deleted jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
AT_ONCE = 1_000
SUMS = ("gpu_s", "measured_s", "busy_s", "p95", "peak_mib", "wh", "cpu_s")


def upgrade() -> None:
    """Create the tables `usage` and `usage_days`, and fill `usage` from the rows of jobs."""
    usage = op.create_table(
        "usage",
        sa.Column("job", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("attempt", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("node", sa.Text(), primary_key=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        *_sums(),
    )
    op.create_table(
        "usage_days",
        sa.Column("day", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("user", sa.Text(), primary_key=True),
        sa.Column("project", sa.Text(), primary_key=True),
        sa.Column("queue", sa.Text(), primary_key=True),
        sa.Column("jobs", NUMBER, nullable=False),
        *_sums(),
    )
    connection, last = op.get_bind(), 0
    page = sa.text(
        'SELECT id, "user", project, queue, submitted_at, ended_at, "array", body FROM jobs '
        "WHERE id > :last ORDER BY id LIMIT :most"
    )
    while rows := connection.execute(page, {"last": last, "most": AT_ONCE}).all():
        last = rows[-1].id
        if found := [record for row in rows for record in _records(row)]:
            connection.execute(usage.insert(), found)
    op.create_index("usage_by_end", "usage", ["until"])


def _sums() -> list[sa.Column[Any]]:
    return [
        sa.Column(name, NUMBER if name in ("p95", "peak_mib") else sa.Float(), nullable=False)
        for name in SUMS
    ]


def _records(row: Any) -> list[dict[str, Any]]:
    try:
        return list(_read(row, json.loads(row.body)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return []  # Skip a damaged row, because load() and verify() report it.


def _read(row: Any, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the usage records of a job: one for all earlier attempts together, and, if the job has ended, one
    for each node of its last attempt.

    The times of earlier attempts are not stored, so their record begins at the submit and ends one second
    later.
    """
    label = str(row.id) if row.array is None else f"{row.array}_{body.get('index')}"
    whose = {"job": row.id, "label": label, "user": row.user, "project": row.project, "queue": row.queue}
    none = dict.fromkeys(SUMS, 0)
    if body.get("spent_gpu_s"):
        since = row.submitted_at
        yield whose | none | {
            "attempt": 0, "node": "", "since": since, "until": since + 1.0,
            "gpu_s": body["spent_gpu_s"], "wh": body.get("spent_wh", 0.0),
        }  # fmt: skip
    for member in body["members"] if row.ended_at is not None else ():
        since, until = member["started_at"], member["ended_at"] or row.ended_at
        if since is None:
            continue
        held = sum(hold["milli"] for hold in member["allocation"].get("gpus", ())) / 1_000
        gpu_s, use = held * max(0.0, until - since), member.get("use")
        sums = none | {"gpu_s": gpu_s, "cpu_s": member["cpu_s"]}
        if use is not None:
            sums |= {"measured_s": gpu_s, "busy_s": gpu_s * use["mean"] / 100, "p95": use["p95"]}
            sums |= {"peak_mib": use["peak_mib"], "wh": use.get("wh", 0.0)}
        yield whose | sums | {
            "attempt": body["attempt"], "node": member["allocation"]["node"],
            "since": since, "until": max(since, until),
        }  # fmt: skip
