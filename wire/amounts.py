"""Parses amounts and times that users write, such as 16G, 2h30m or 18:30. For a wrong text, each function
raises ValueError with a message that shows valid forms.
"""

from __future__ import annotations

import enum
import math
import re
import shlex
import time
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Callable, Iterator, Optional, TypeVar

from wire.names import PRIORITIES

Kind = TypeVar("Kind", bound=enum.Enum)

_MEMORY = re.compile(r"(\d+(?:\.\d+)?) *([KMGTP])?(?:i?B)?", re.IGNORECASE)
_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4}
_SPANS = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def memory_mib(text: str) -> int:
    """Return an amount in MiB, rounded up, for a text such as 16G, 512M or 1.5T."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write 512M, 16G or 1T")
    number, unit = match.groups()
    if unit is None:
        raise ValueError(f"{text!r} has no unit; write {number}M or {number}G")
    return math.ceil(_amount(number) * _KIB[unit.upper()] / 1024)


def seconds(text: str) -> float:
    """Return seconds for a text such as 2h30m, 90s, 01:30:00 or 1-12:00:00."""
    word = text.strip().lower()
    if _NUMBER.fullmatch(word):
        raise ValueError(f"{text!r} has no unit; write {word}s, {word}m, {word}h or 01:30:00")
    spans = _SPANS.findall(word)
    units = [unit for _, unit in spans]
    if spans and "".join(number + unit for number, unit in spans) == word:
        if units != sorted(set(units), key="dhms".index):
            raise ValueError(f"{text!r} names a unit twice or out of order; write 1d12h or 2h30m")
        return sum(_amount(number) * _SECONDS[unit] for number, unit in spans)
    return _clock(text, word)


def _clock(text: str, word: str) -> float:
    match = _CLOCK.fullmatch(word)
    if match is None or len(word) > 30:
        raise ValueError(f"{text!r} is not a time; write 2h30m, 90s, 01:30:00 or 1-12:00:00")
    days, first, second, third = match.groups()
    if days is None and third is None:
        raise ValueError(f"{text!r} could be hours or minutes; write 1h30m, 90m or 01:30:00")
    if any(part is not None and int(part) > 59 for part in (second, third)):
        raise ValueError(f"{text!r} has more than 59 minutes or seconds; write 2h30m or 01:30:00")
    if days is not None and int(first) > 23:
        raise ValueError(f"{text!r} has days and more than 23 hours; write 1-12:00:00")
    return int(days or 0) * 86_400 + int(first) * 3_600 + int(second or 0) * 60 + int(third or 0)


_PRESENT: ContextVar[Optional[tuple[float, tzinfo]]] = ContextVar("present", default=None)


def present() -> float:
    """Return the present time in seconds since 1970. In a block `with as_of(now, zone)`, return `now`."""
    given = _PRESENT.get()
    return time.time() if given is None else given[0]


@contextmanager
def as_of(now: float, zone: tzinfo) -> Iterator[None]:
    """Context manager: in its block, `moment` and `present` use `now` as the present time, and `moment` uses
    `zone` as the time zone.

    Simulations use `as_of`, so that "18:00" is a time of the simulated day.
    """
    token = _PRESENT.set((now, zone))
    try:
        yield
    finally:
        _PRESENT.reset(token)


def moment(text: str, now: Optional[float] = None) -> float:
    """Return the seconds since 1970 for a text such as now, +2h, 18:30 (today or tomorrow), 2030-05-01 or
    2030-05-01T08:00. The argument `now` replaces the present time.
    """
    word, now = text.strip(), present() if now is None else now
    given = _PRESENT.get()
    zone = None if given is None else given[1]  # None means the time zone of this host.
    relative = word.removeprefix("now")
    if not relative and word:
        return now
    if relative.startswith("+"):
        return now + seconds(relative[1:])
    clock = _TIME_OF_DAY.fullmatch(word)
    try:
        if clock is not None:
            hour, minute, second = (int(part or 0) for part in clock.groups())
            # Use local time without a fixed UTC offset, because tomorrow may have another offset than today
            # (summer time).
            today = datetime.fromtimestamp(now, UTC).astimezone(zone).replace(tzinfo=zone)
            today = today.replace(hour=hour, minute=minute, second=second, microsecond=0)
            return (today if today.timestamp() > now else today + timedelta(days=1)).timestamp()
        named = datetime.fromisoformat(word)
        return (named if named.tzinfo else named.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time; write 18:30, 2030-05-01, 2030-05-01T08:00 or +2h"
        ) from None


def moment_or_delay(text: str, now: Optional[float] = None) -> float:
    """Return a time in seconds since 1970. `text` is a time as in `moment`, or a duration from now such as
    2h.
    """
    word = text.strip()
    is_duration = word[:1].isdigit() and word[-1:].isalpha()
    return moment(f"+{word}" if is_duration else word, now)


def cores_milli(text: str) -> int:
    """Return thousandths of a core for a number of cores, such as 4 or 0.5."""
    return math.ceil(_positive(text, "a number of cores", "write 4 or 0.5") * 1000)


def gpus(text: str) -> float:
    """Return the number of GPUs for a text such as 8, or for a part of one GPU such as 0.25."""
    return _number(text, "a number of GPUs", "write 8 or 0.25")


def number(text: str) -> float:
    return _number(text, "a number", "write 2 or 0.5")


def limit(text: str) -> float:
    """Return the value of a limit: a number that is not negative, or -1 for the word none."""
    return -1.0 if text.lower() == "none" else _number(text, "an amount", "write 500 or 0.5, or none")


def whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{text!r} is not a whole number; write 20")
    return int(text)


def count(text: str) -> int:
    """Return the whole number above zero that the text names."""
    number = _positive(text, "a whole number above zero", "write 2")
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number above zero; write 2")
    return int(number)


def priority(text: str) -> int:
    """Return the priority, 0 to 100, for a number or for the name of a priority class such as HIGH."""
    word = text.strip().upper()
    if word in PRIORITIES:
        return PRIORITIES[word]
    if re.fullmatch(r"\d{1,3}", word) and int(word) <= 100:
        return int(word)
    raise ValueError(f"{text!r} is not a priority; write {', '.join(PRIORITIES)}, or a number from 0 to 100")


def member(kind: type[Kind]) -> Callable[[str], Kind]:
    """Return a function that converts a text to the member of the enum class `kind` with this text as its
    value. The function raises ValueError if there is no such member.
    """

    def read(text: str) -> Kind:
        try:
            return kind(text)
        except ValueError:
            words = ", ".join(str(each.value) for each in kind)
            raise ValueError(f"{text!r} is none of {words}") from None

    return read


def pair(text: str) -> tuple[str, str]:
    """Split KEY=VALUE into the key and the value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key, value


def _positive(text: str, what: str, remedy: str) -> float:
    number = _number(text, what, remedy)
    if number <= 0:
        raise ValueError(f"{text!r} is not {what}; {remedy}")
    return number


def _number(text: str, what: str, remedy: str) -> float:
    word = text.strip()
    if not _NUMBER.fullmatch(word):
        raise ValueError(f"{text!r} is not {what}; {remedy}")
    return float(word)


def _amount(number: str) -> float:
    if len(number) > 15:
        raise ValueError(f"{number} is too large")
    return float(number)


def words(text: str) -> tuple[str, ...]:
    """Split a command line into words at spaces, with quotation marks as in a shell. Variables and patterns
    are not expanded.
    """
    try:
        found = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {str(error).lower()}; close the quotation marks") from None
    if not found:
        raise ValueError("the command is empty; name a program")
    return found


def signal(text: str) -> str:
    """Return the name of a signal without SIG: USR1 for USR1 or SIGUSR1."""
    # Import wire.job.spec only here, because every command of corral imports this module and must start fast.
    from wire.job.spec import SIGNALS, signal_name

    name = signal_name(text)
    if not name:
        raise ValueError(f"{text!r} is not a signal for a job; choose one of {', '.join(SIGNALS)}")
    return name
