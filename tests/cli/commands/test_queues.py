"""The output of corral queues."""

from __future__ import annotations

from cli.commands.policy.queues import table
from wire.api.policy.queues import QueueDay, QueueView


def test_queue_table_shows_use_policy_and_figures_of_the_day() -> None:
    policy = ("all users", "each user at most 2 running jobs")
    day = QueueDay(0.0, 4, 2, 1, 60.0, 7_200.0, 9_000.0, 0.125)
    view = QueueView("book", 10, policy, 3, 2, 1.5, {"priority": 10}, day)
    _, line = table().lines([view], None)
    assert line.split() == [
        *("book", "10", "3", "2", "1.5", "0.1", "1m00s", "2h00m"),
        *("all", "users;", "each", "user", "at", "most", "2", "running", "jobs"),
    ]
