"""Hours of the week: the hours in which jobs of a queue may start ([queues.NAME] hours), or in which a table
[hours.NAME] is in force.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import ClassVar

from wire.names import Reason
from wire.text import duration, printable

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = 24 * 60
WEEK = 7 * DAY
"""The length of a week, in minutes."""
QUARTER_S = 900
QUARTERS_SEARCHED = 8 * 96
"""The search for the next opening tries this many quarters of an hour: eight days, because a clock change can
skip one weekly opening.
"""
_DAYS = rf"(?P<first>{'|'.join(DAYS)})(?:-(?P<last>{'|'.join(DAYS)}))?"
_TIMES = r"(?P<from>\d\d:\d\d)-(?P<to>\d\d:\d\d)"
_WINDOW = re.compile(rf"(?:{_DAYS}(?: {_TIMES})?|{_TIMES.replace('from', 'since').replace('to', 'until')})")
FORM = 'write days, times or both, such as "sat-sun", "20:00-08:00" or "mon-fri 20:00-08:00"'


@dataclass(frozen=True, slots=True)
class WeekHours:
    """Hours of the week in a time zone. In these hours, jobs of a queue may start or a table [hours.NAME] is
    in force.

    Algorithm of `next_opening`: try each quarter of an hour in the next eight days. The result is exact,
    because hours begin and end at full quarters, and every time zone differs from UTC by a whole number of
    quarters.

    Cost: `is_open` converts one time to local time. `next_opening` calls `is_open` at most 768 times.

    Example: "mon-fri 20:00-08:00" opens on Monday at 20:00 for the first time in the week, and closes on
    Saturday at 08:00 for the last time. Jobs that run at 08:00 continue.
    """

    texts: tuple[str, ...]
    windows: tuple[tuple[int, int], ...]
    """(begin, end) of each window in minutes after Monday 00:00. `end` is greater than WEEK if the window
    ends in the next week.
    """
    zone: tzinfo
    zone_name: str

    def __str__(self) -> str:
        return f"{', '.join(self.texts)} ({self.zone_name})"

    def is_open(self, at: float) -> bool:
        """Return whether the time `at` is within the hours."""
        local = datetime.fromtimestamp(at, self.zone)
        return self.covers(local.weekday() * DAY + local.hour * 60 + local.minute)

    def covers(self, minute: int) -> bool:
        """Return whether a minute of the week, counted from Monday 00:00, is within the hours."""
        return any(first <= minute < end or first <= minute + WEEK < end for first, end in self.windows)

    def next_opening(self, now: float) -> float:
        """Return the first time after `now` that is within the hours. Return infinity if there is none in the
        next eight days.
        """
        return self._next_quarter(now, is_open=True)

    def next_closing(self, now: float) -> float:
        """Return the first time after `now` that is outside the hours. Return infinity if there is none in
        the next eight days.
        """
        return self._next_quarter(now, is_open=False)

    def _next_quarter(self, now: float, *, is_open: bool) -> float:
        first = int(now // QUARTER_S) + 1
        later = (QUARTER_S * quarter for quarter in range(first, first + QUARTERS_SEARCHED))
        return next((float(at) for at in later if self.is_open(at) == is_open), math.inf)


@dataclass(frozen=True, slots=True)
class HoursClosed:
    """The reason why a job may not start: the time is outside the hours of its queue."""

    queue: str
    hours: WeekHours
    now: float
    opens_at: float
    reason: ClassVar[Reason] = Reason.HOURS
    only_this_job: ClassVar[bool] = False

    def __str__(self) -> str:
        wait = duration(self.opens_at - self.now)
        return f"queue {printable(self.queue)!r} starts jobs only {self.hours}: the next time in {wait}"


def windows_of(text: str) -> list[tuple[int, int]]:
    """Return (begin, end) for each day of a text such as "mon-fri 20:00-08:00", in minutes since Monday
    00:00. Raise ValueError with a message for users if the text has another form.

    Example: "mon 20:00-08:00" gives [(1200, 1920)]: the window ends on the next day, because its end is
    before its begin. "mon" gives [(0, 1440)], the whole day.
    """
    found = _WINDOW.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a time of the week; {FORM}")
    since, until = _minute(found["from"] or found["since"]), _minute(found["to"] or found["until"])
    first = DAYS.index(found["first"]) if found["first"] else 0
    last = DAYS.index(found["last"] or found["first"]) if found["first"] else len(DAYS) - 1
    if since is None or until is None:
        since, until = 0, DAY
    if since == until:
        raise ValueError(f"{text!r} begins and ends at the same time; leave the times out for a whole day")
    length = until - since if until > since else until + DAY - since
    days = range(first, last + 1 if last >= first else last + 1 + len(DAYS))
    return [(day % len(DAYS) * DAY + since, day % len(DAYS) * DAY + since + length) for day in days]


def _minute(text: str | None) -> int | None:
    """Return the minute of the day for a text such as 20:15. The text 24:00 gives 1440, and None gives
    None.
    """
    if text is None:
        return None
    hours, minutes = map(int, text.split(":"))
    if minutes % 15 or minutes > 45 or 60 * hours + minutes > DAY:
        raise ValueError(f"{text!r} is not a quarter of an hour from 00:00 to 24:00")
    return 60 * hours + minutes
