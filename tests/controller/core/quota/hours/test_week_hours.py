"""The hours in which jobs of a queue may start: windows of the week, time zones and changes of the clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from controller.core.quota.hours.week_hours import WeekHours, windows_of


def hours_of(*texts: str, zone: str = "UTC") -> WeekHours:
    windows = tuple(window for text in texts for window in windows_of(text))
    return WeekHours(texts, windows, ZoneInfo(zone), zone)


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("texts", "now", "opening"),
    [
        # 2026-11-16 is a Monday.
        (["mon-fri 20:00-08:00"], "2026-11-16 12:00", "2026-11-16 20:00"),
        (["mon-fri 20:00-08:00"], "2026-11-16 07:59", "2026-11-16 20:00"),
        (["mon-fri 20:00-08:00"], "2026-11-17 07:59", None),
        (["mon-fri 20:00-08:00"], "2026-11-21 07:59", None),
        (["mon-fri 20:00-08:00"], "2026-11-21 08:00", "2026-11-23 20:00"),
        (["mon-fri 20:00-08:00", "sat-sun"], "2026-11-22 23:59", None),
        (["mon-fri 20:00-08:00", "sat-sun"], "2026-11-23 00:00", "2026-11-23 20:00"),
        (["sun 22:00-02:00"], "2026-11-16 01:59", None),
        (["fri-mon"], "2026-11-16 23:59", None),
        (["fri-mon"], "2026-11-17 00:00", "2026-11-20 00:00"),
        (["00:00-24:00"], "2026-11-17 00:00", None),
        (["12:15-12:30"], "2026-11-17 12:30", "2026-11-18 12:15"),
    ],
)
def test_windows_of_the_week(texts: list[str], now: str, opening: str | None) -> None:
    hours = hours_of(*texts)
    assert hours.is_open(at(now)) == (opening is None)
    if opening is not None:
        assert hours.next_opening(at(now)) == at(opening)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("someday", "is not a time of the week"),
        ("mon 8-10", "is not a time of the week"),
        ("mon 08:00-08:00", "begins and ends at the same time"),
        ("mon 08:00-25:00", "is not a quarter of an hour"),
        ("mon 08:05-09:00", "is not a quarter of an hour"),
    ],
)
def test_texts_that_are_no_hours(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        windows_of(text)


def test_hours_follow_the_clock_of_their_time_zone() -> None:
    hours = hours_of("08:00-09:00", zone="Europe/Berlin")
    for day in ("2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25"):
        before = at(f"{day} 00:00", "Europe/Berlin")
        assert hours.next_opening(before) == at(f"{day} 08:00", "Europe/Berlin")


def test_a_window_that_begins_in_a_skipped_hour_opens_after_this_hour() -> None:
    # In Berlin the clock goes from 02:00 to 03:00 on 2026-03-29.
    hours = hours_of("02:30-05:00", zone="Europe/Berlin")
    assert hours.next_opening(at("2026-03-29 00:00", "Europe/Berlin")) == at(
        "2026-03-29 03:00", "Europe/Berlin"
    )
    midnight = at("2026-03-29 00:00", "Europe/Berlin")
    skipped = hours_of("sun 02:00-03:00", zone="Europe/Berlin")
    next_week = at("2026-04-05 02:00", "Europe/Berlin")
    assert skipped.next_opening(midnight) == next_week


def test_the_next_opening_is_the_first_open_minute() -> None:
    hours = hours_of("mon-wed 01:45-02:15", "fri 23:30-00:15", zone="Europe/Berlin")
    moment = datetime(2026, 10, 23, tzinfo=ZoneInfo("UTC"))
    for _ in range(300):
        now = moment.timestamp()
        if not hours.is_open(now):
            minutes = (now + 60.0 * step for step in range(1, 8 * 24 * 60))
            assert hours.next_opening(now) == next(each for each in minutes if hours.is_open(each))
        moment += timedelta(minutes=37)
