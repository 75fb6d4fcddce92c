"""Amounts and times as users write them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import amounts


@pytest.mark.parametrize(
    ("read", "text", "amount"),
    [
        (amounts.memory_mib, "16G", 16_384),
        (amounts.memory_mib, "16g", 16_384),
        (amounts.memory_mib, "16GB", 16_384),
        (amounts.memory_mib, "16GiB", 16_384),
        (amounts.memory_mib, "16 G", 16_384),
        (amounts.memory_mib, "1.5G", 1_536),
        (amounts.memory_mib, "512M", 512),
        (amounts.memory_mib, "1025K", 2),
        (amounts.memory_mib, "2T", 2 << 20),
        (amounts.seconds, "90s", 90),
        (amounts.seconds, "2h30m", 9_000),
        (amounts.seconds, "1d12h", 129_600),
        (amounts.seconds, "1.5h", 5_400),
        (amounts.seconds, "2H", 7_200),
        (amounts.seconds, "01:30:00", 5_400),
        (amounts.seconds, "100:00:00", 360_000),
        (amounts.seconds, "1-12:00:00", 129_600),
        (amounts.seconds, "1-12:30", 131_400),
        (amounts.seconds, "1-12", 129_600),
        (amounts.cores_milli, "4", 4_000),
        (amounts.cores_milli, "0.5", 500),
        (amounts.cores_milli, "0.0001", 1),
        (amounts.gpus, "8", 8),
        (amounts.gpus, "0.25", 0.25),
        (amounts.gpus, "0", 0),
        (amounts.count, "2", 2),
        (amounts.priority, "HIGH", 75),
        (amounts.priority, "batch", 10),
        (amounts.priority, "0", 0),
        (amounts.priority, "100", 100),
        (amounts.pair, "rack=r1", ("rack", "r1")),
        (amounts.pair, "a=b=c", ("a", "b=c")),
        (amounts.pair, "a=", ("a", "")),
    ],
)
def test_what_is_understood(read: Callable[[str], Any], text: str, amount: Any) -> None:
    assert read(text) == amount


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (amounts.memory_mib, "16", "no unit; write 16M or 16G"),
        (amounts.memory_mib, "16X", "not an amount of memory"),
        (amounts.memory_mib, "-1G", "not an amount of memory"),
        (amounts.memory_mib, "", "not an amount of memory"),
        (amounts.memory_mib, "1e9G", "not an amount of memory"),
        (amounts.memory_mib, "nanG", "not an amount of memory"),
        (amounts.memory_mib, "9" * 400 + "G", "too large"),
        (amounts.seconds, "90", "no unit; write 90s, 90m, 90h or 01:30:00"),
        (amounts.seconds, "", "not a time"),
        (amounts.seconds, "soon", "not a time"),
        (amounts.seconds, "2h30", "not a time"),
        (amounts.seconds, "30m2h", "out of order"),
        (amounts.seconds, "1h1h", "twice"),
        (amounts.seconds, "12:30", "hours or minutes"),
        (amounts.seconds, "01:60:00", "more than 59"),
        (amounts.seconds, "1-24:00:00", "more than 23 hours"),
        (amounts.seconds, "-5m", "not a time"),
        (amounts.seconds, "1-2-3", "not a time"),
        (amounts.seconds, "9" * 4_000 + "-1", "not a time"),
        (amounts.cores_milli, "0", "not a number of cores"),
        (amounts.cores_milli, "many", "not a number of cores"),
        (amounts.cores_milli, "1e3", "not a number of cores"),
        (amounts.cores_milli, "nan", "not a number of cores"),
        (amounts.gpus, "-1", "not a number of GPUs"),
        (amounts.gpus, "two", "not a number of GPUs"),
        (amounts.count, "0", "whole number"),
        (amounts.count, "1.5", "whole number"),
        (amounts.priority, "urgent", "CRITICAL, HIGH"),
        (amounts.priority, "101", "from 0 to 100"),
        (amounts.priority, "-1", "from 0 to 100"),
        (amounts.priority, "²", "from 0 to 100"),
        (amounts.pair, "rack", "not KEY=VALUE"),
        (amounts.pair, "=r1", "not KEY=VALUE"),
    ],
)
def test_what_is_not_understood_says_how_to_write_it(
    read: Callable[[str], Any], text: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        read(text)


@given(st.integers(0, 9_999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_time_means_the_same_in_all_its_spellings(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    amount = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert amounts.seconds(f"{days}d{hours}h{minutes}m{seconds}s") == amount
    assert amounts.seconds(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == amount
    assert amounts.seconds(f"{days * 24 + hours}:{minutes:02}:{seconds:02}") == amount


@pytest.mark.parametrize(
    "read", [amounts.memory_mib, amounts.seconds, amounts.cores_milli, amounts.gpus, amounts.priority]
)
@given(text=st.text(max_size=30) | st.text(alphabet="0123456789.:-dhmsGMKT", max_size=12))
def test_any_text_is_an_amount_or_a_complaint(read: Callable[[str], float], text: str) -> None:
    try:
        amount = read(text)
    except ValueError:
        return
    assert 0 <= amount < float("inf")


NOON = time.mktime((2030, 5, 1, 12, 0, 0, 0, 0, -1))
"""Where we are, whatever its time zone."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+2h", NOON + 7_200),
        ("now", NOON),
        ("now+90s", NOON + 90),
        ("12:30", NOON + 1_800),
        ("12:00:01", NOON + 1),
        ("2030-05-01T13:00", NOON + 3_600),
        ("2030-05-01 13:00", NOON + 3_600),
        ("2030-05-01T00:00+00:00", 1_903_824_000.0),
    ],
)
def test_moments(text: str, expected: float) -> None:
    assert amounts.moment(text, NOON) == expected


def test_a_time_of_day_that_has_passed_is_tomorrow() -> None:
    assert datetime.fromtimestamp(amounts.moment("11:59", NOON)).timetuple()[:5] == (2030, 5, 2, 11, 59)  # noqa: DTZ006


@pytest.mark.parametrize("text", ["", "soon", "25:00", "+2", "2030-13-01", "12", "+"])
def test_what_is_no_moment_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|could be|has no unit"):
        amounts.moment(text, NOON)
