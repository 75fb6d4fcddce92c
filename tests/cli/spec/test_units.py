"""Amounts as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.spec import units


@pytest.mark.parametrize(
    ("read", "text", "amount"),
    [
        (units.memory_mib, "16G", 16_384),
        (units.memory_mib, "16g", 16_384),
        (units.memory_mib, "16GB", 16_384),
        (units.memory_mib, "16GiB", 16_384),
        (units.memory_mib, "16 G", 16_384),
        (units.memory_mib, "1.5G", 1_536),
        (units.memory_mib, "512M", 512),
        (units.memory_mib, "1025K", 2),
        (units.memory_mib, "2T", 2 << 20),
        (units.seconds, "90s", 90),
        (units.seconds, "2h30m", 9_000),
        (units.seconds, "1d12h", 129_600),
        (units.seconds, "1.5h", 5_400),
        (units.seconds, "2H", 7_200),
        (units.seconds, "01:30:00", 5_400),
        (units.seconds, "100:00:00", 360_000),
        (units.seconds, "1-12:00:00", 129_600),
        (units.seconds, "1-12:30", 131_400),
        (units.seconds, "1-12", 129_600),
        (units.cores_milli, "4", 4_000),
        (units.cores_milli, "0.5", 500),
        (units.cores_milli, "0.0001", 1),
        (units.gpus, "8", 8),
        (units.gpus, "0.25", 0.25),
        (units.gpus, "0", 0),
        (units.count, "2", 2),
        (units.priority, "HIGH", 75),
        (units.priority, "batch", 10),
        (units.priority, "0", 0),
        (units.priority, "100", 100),
        (units.pair, "rack=r1", ("rack", "r1")),
        (units.pair, "a=b=c", ("a", "b=c")),
        (units.pair, "a=", ("a", "")),
    ],
)
def test_what_is_understood(read: Callable[[str], Any], text: str, amount: Any) -> None:
    assert read(text) == amount


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (units.memory_mib, "16", "no unit; write 16M or 16G"),
        (units.memory_mib, "16X", "not an amount of memory"),
        (units.memory_mib, "-1G", "not an amount of memory"),
        (units.memory_mib, "", "not an amount of memory"),
        (units.memory_mib, "1e9G", "not an amount of memory"),
        (units.memory_mib, "nanG", "not an amount of memory"),
        (units.memory_mib, "9" * 400 + "G", "too large"),
        (units.seconds, "90", "no unit; write 90s, 90m, 90h or 01:30:00"),
        (units.seconds, "", "not a time"),
        (units.seconds, "soon", "not a time"),
        (units.seconds, "2h30", "not a time"),
        (units.seconds, "30m2h", "out of order"),
        (units.seconds, "1h1h", "twice"),
        (units.seconds, "12:30", "hours or minutes"),
        (units.seconds, "01:60:00", "more than 59"),
        (units.seconds, "1-24:00:00", "more than 23 hours"),
        (units.seconds, "-5m", "not a time"),
        (units.seconds, "1-2-3", "not a time"),
        (units.seconds, "9" * 4_000 + "-1", "not a time"),
        (units.cores_milli, "0", "not a number of cores"),
        (units.cores_milli, "many", "not a number of cores"),
        (units.cores_milli, "1e3", "not a number of cores"),
        (units.cores_milli, "nan", "not a number of cores"),
        (units.gpus, "-1", "not a number of GPUs"),
        (units.gpus, "two", "not a number of GPUs"),
        (units.count, "0", "whole number"),
        (units.count, "1.5", "whole number"),
        (units.priority, "urgent", "CRITICAL, HIGH"),
        (units.priority, "101", "from 0 to 100"),
        (units.priority, "-1", "from 0 to 100"),
        (units.priority, "²", "from 0 to 100"),
        (units.pair, "rack", "not KEY=VALUE"),
        (units.pair, "=r1", "not KEY=VALUE"),
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
    assert units.seconds(f"{days}d{hours}h{minutes}m{seconds}s") == amount
    assert units.seconds(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == amount
    assert units.seconds(f"{days * 24 + hours}:{minutes:02}:{seconds:02}") == amount


@pytest.mark.parametrize(
    "read", [units.memory_mib, units.seconds, units.cores_milli, units.gpus, units.priority]
)
@given(text=st.text(max_size=30) | st.text(alphabet="0123456789.:-dhmsGMKT", max_size=12))
def test_any_text_is_an_amount_or_a_complaint(read: Callable[[str], float], text: str) -> None:
    try:
        amount = read(text)
    except ValueError:
        return
    assert 0 <= amount < float("inf")
