"""The output of corral queues."""

from __future__ import annotations

from cli.commands.policy.queues import table
from wire.api.tenants import QueueView


def test_queue_table_shows_use_and_policy() -> None:
    view = QueueView(
        "book", 10, ("all users", "each user at most 2 running jobs"), 3, 2, 1.5, {"priority": 10}
    )
    _, line = table().lines([view], None)
    assert line.split() == [
        *("book", "10", "3", "2", "1.5"),
        *("all", "users;", "each", "user", "at", "most", "2", "running", "jobs"),
    ]
