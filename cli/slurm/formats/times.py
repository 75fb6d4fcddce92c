"""Prints and reads times and durations in Slurm's formats."""

from __future__ import annotations

import os
import re
import time

_NOW = re.compile(r"now(?:([+-])(\d+)(second|minute|hour|day|week)?s?)?")
_SPAN = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_DAY = re.compile(
    r"(?:(\d{4})-)?(\d{1,2})-(\d{1,2})|(\d{1,2})[/.](\d{1,2})(?:[/.](\d{2,4}))?|(\d{2})(\d{2})(\d{2})?"
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([AP]M)?")


def moment(seconds: float | None, none: str) -> str:
    """Return a time as text in the form that SLURM_TIME_FORMAT sets. `standard`, the default, gives
    2031-05-01T08:00:00. `relative` gives a text such as `Ystday 08:00` or, for today, 08:00:00. Any other
    value is a format of strftime. `none` is the text to return if `seconds` is None.
    """
    if seconds is None:
        return none
    form = os.environ.get("SLURM_TIME_FORMAT", "")
    local = time.localtime(seconds)
    if form == "relative":
        return _relative(local)
    if not form or form == "standard":
        # Format the time by hand, because time.strftime is slower and this function runs several times for
        # each line.
        return (
            f"{local.tm_year:04}-{local.tm_mon:02}-{local.tm_mday:02}"
            f"T{local.tm_hour:02}:{local.tm_min:02}:{local.tm_sec:02}"
        )
    return time.strftime(form, local)


def _relative(local: time.struct_time) -> str:
    days = (_midnight(local) - _midnight(time.localtime())) / 86_400
    clock = time.strftime("%H:%M", local)
    if round(days) == 0:
        return time.strftime("%H:%M:%S", local)
    if round(days) in (-1, 1):
        return f"{'Ystday' if days < 0 else 'Tomorr'} {clock}"
    if -7 < days < 7:
        return time.strftime("%a %H:%M", local)
    return time.strftime("%-d %b %H:%M" if abs(days) < 365 else "%-d %b %Y", local)


def _midnight(local: time.struct_time) -> float:
    return time.mktime((*local[:3], 0, 0, 0, 0, 0, -1))


def span(seconds: float) -> str:
    """Return a duration as squeue prints it: 0:03, 10:00, 2:00:00 or 1-02:04:00."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def long_span(seconds: float) -> str:
    """Return a duration as sacct and scontrol print it: 00:00:03 or 1-02:04:00."""
    days, rest = divmod(max(0, int(seconds)), 86_400)
    clock = f"{rest // 3_600:02}:{rest % 3_600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def whole_minutes(seconds: float) -> int:
    """Return a time limit in minutes, rounded up, because Slurm's limits have no seconds."""
    return -int(-seconds // 60)


def read_moment(text: str, now: float) -> float:
    """Return the time for a value of --starttime, in seconds since 1970: now-2hours, 2031-05-01,
    2031-05-01T08:00, 05/01, 08:00, a word such as noon, or seconds since 1970 after `@`. Raise ValueError for
    any other text.
    """
    word = text.strip()
    relative = _NOW.fullmatch(word.lower())
    if relative is not None:
        sign, number, unit = relative.groups()
        return now + (-1 if sign == "-" else 1) * int(number or 0) * _SPAN[unit or "second"]
    today = time.localtime(now)
    named = {"today": 0, "midnight": 0, "tomorrow": 1, "noon": 0.5}
    if word.lower() in named:
        return _midnight(today) + named[word.lower()] * 86_400
    if word.startswith("@") and word[1:].isdigit():
        return float(word[1:])
    day_text, clock_text = _parts(word)
    year, month, day = _day(day_text, today) if day_text else today[:3]
    hour, minute, second = _clock(clock_text) if clock_text else (0, 0, 0)
    try:
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        raise ValueError(word) from None


def _parts(word: str) -> tuple[str, str]:
    """Return the day and the time of day in a text such as 05/01-08:00. One of the two may be empty."""
    if _CLOCK.fullmatch(word.upper()):
        return "", word
    if "T" in word:
        day, _, clock = word.partition("T")
        return day, clock
    # Accept a dash before the time of day, as in 1970-01-01-00:00:01 and 05/01-08:00.
    head, dash, tail = word.rpartition("-")
    return (head, tail) if dash and ":" in tail else (word, "")


def _day(text: str, today: time.struct_time) -> tuple[int, int, int]:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, month2, day2, year2, month3, day3, year3 = match.groups()
    found = int(year or year2 or year3 or today.tm_year)
    found += 2_000 if found < 100 else 0
    months, days = int(month or month2 or month3), int(day or day2 or day3)
    if not (1 <= months <= 12 and 1 <= days <= 31):
        raise ValueError(text)
    return found, months, days


def _clock(text: str) -> tuple[int, int, int]:
    match = _CLOCK.fullmatch(text.upper())
    if match is None or int(match[1]) > 24 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise ValueError(text)
    hour = int(match[1])
    if match[4]:
        hour = hour % 12 + (12 if match[4] == "PM" else 0)
    return hour, int(match[2]), int(match[3] or 0)
