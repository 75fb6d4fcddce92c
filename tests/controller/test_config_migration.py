"""Keys of scheduler.toml move from older places to their present places, and nothing else changes."""

from __future__ import annotations

import pytest

from controller.config import ConfigRefused, load_text
from controller.config.migration import migrate
from controller.registry.limits import queue_priority_caps

OLD = """\
# the lab
[access.limits.queues.short]
priority = "HIGH"   # for short

[access.limits.queues.long]
priority = 25
grace_s = 60.0
[queues.short]
# quick jobs
max_time_limit_s = 60.0
[queues.long]
"""
NEW = """\
# the lab
[access.limits.queues.long]
grace_s = 60.0
[queues.short]
max_priority = "HIGH"   # for short
# quick jobs
max_time_limit_s = 60.0
[queues.long]
max_priority = 25
"""


def test_keys_move_and_comments_stay() -> None:
    done = migrate(OLD, "lab.toml")
    assert done.text == NEW
    assert done.moved == (
        ("access.limits.queues.short.priority", "queues.short.max_priority"),
        ("access.limits.queues.long.priority", "queues.long.max_priority"),
    )
    assert done.by_hand == ()
    old, new = load_text(OLD, "lab.toml"), load_text(NEW, "lab.toml")
    assert queue_priority_caps(old) == queue_priority_caps(new) == {"short": 75, "long": 25}
    again = migrate(NEW, "lab.toml")
    assert (again.text, again.moved) == (NEW, ())


def test_heading_after_the_present_table_is_found_too() -> None:
    text = "[queues.a]\n[access.limits.queues.a]\npriority = 5\n[queues.b]\n"
    assert migrate(text, "lab.toml").text == "[queues.a]\nmax_priority = 5\n[queues.b]\n"


def test_key_that_is_set_in_both_places_is_removed_from_the_older_one() -> None:
    text = "[queues.a]\nmax_priority = 5\n[access.limits.queues.a]\npriority = 5\n"
    assert migrate(text, "lab.toml").text == "[queues.a]\nmax_priority = 5\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "[access.limits.queues.a]\npriority = 5\n",
            "lab.toml:2: access.limits.queues.a.priority cannot be moved to queues.a.max_priority: "
            "there is no heading [queues.a] in the file",
        ),
        (
            "[queues.a]\n[access.limits.queues]\na = { priority = 5 }\n",
            "lab.toml:3: access.limits.queues.a.priority cannot be moved to queues.a.max_priority: "
            "it is not on a line of its own",
        ),
        (
            "[access.limits.queues.a]\npriority = 7\n[queues.a]\nmax_priority = 5\n",
            "lab.toml:2: access.limits.queues.a.priority cannot be moved to queues.a.max_priority: "
            "line 4 sets queues.a.max_priority = 5, which applies; delete the line that is wrong",
        ),
    ],
)
def test_key_that_cannot_be_moved_is_named_with_its_line(text: str, why: str) -> None:
    done = migrate(text, "lab.toml")
    assert (done.text, done.moved, done.by_hand) == (text, (), (why,))


def test_invalid_file_is_refused() -> None:
    with pytest.raises(ConfigRefused):
        migrate("[queues.a]\nmax_priority = 1000\n", "lab.toml")
