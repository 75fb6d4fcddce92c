"""Licences over time, as far as it is known: who holds them, and to whom they are promised."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from controller.core.jobs import NEVER
from controller.core.requests import Wanted


class Stock:
    """One licence: `left[i]` of it are free from `times[i]` until the next time, the last for ever."""

    __slots__ = ("_left", "_times")

    def __init__(self, now: float, left: int) -> None:
        self._times = [now]
        self._left = [left]

    def twin(self) -> Stock:
        """The same, which may go another way from here on."""
        other = Stock(0.0, 0)
        other._times, other._left = self._times.copy(), self._left.copy()
        return other

    def give(self, start: float, end: float, count: int) -> None:
        """So many more are free from `start` until `end`; fewer if negative."""
        start = max(start, self._times[0])
        if end > start:
            first, last = self._cut(start), self._cut(end)
            for at in range(first, last):
                self._left[at] += count

    def _cut(self, when: float) -> int:
        if when == NEVER:
            return len(self._times)
        at = bisect_left(self._times, when)
        if at == len(self._times) or self._times[at] != when:
            self._times.insert(at, when)
            self._left.insert(at, self._left[at - 1])
        return at

    def first(self, count: int, duration: float, since: float) -> float | None:
        """The first moment from `since` on from which so many are free for so long."""
        times, left = self._times, self._left
        at = max(0, bisect_right(times, since) - 1)
        start = since
        while True:
            until = at
            while left[until] >= count:
                until += 1
                if until == len(times) or times[until] >= start + duration:
                    return start
            at = until + 1
            if at >= len(times):
                return None
            start = max(since, times[at])

    def forget(self, now: float) -> None:
        """Drop what is over."""
        over = bisect_right(self._times, now) - 1
        if over > 0:
            del self._times[:over]
            del self._left[:over]


class Stocks:
    """All licences that somebody holds or waits for."""

    def __init__(self, now: float, free: Mapping[str, int]) -> None:
        self._lines = {name: Stock(now, left) for name, left in free.items()}

    def twin(self) -> Stocks:
        """The same, which may go another way from here on."""
        other = Stocks(0.0, {})
        other._lines = {name: line.twin() for name, line in self._lines.items()}
        return other

    def give(self, wanted: Wanted, start: float, end: float, sign: int) -> None:
        """Put licences back (1) or take them out (-1) from `start` until `end`."""
        for name, count in wanted:
            if name in self._lines:
                self._lines[name].give(start, end, sign * count)

    def first(self, wanted: Wanted, duration: float, since: float) -> float | None:
        """The first moment from `since` on from which all of these are free for so long; maybe never."""
        moment = since
        while True:
            before = moment
            for name, count in wanted:
                line = self._lines.get(name)
                found = None if line is None else line.first(count, duration, moment)
                if found is None:
                    return None
                moment = found
            if moment == before:
                return moment

    def forget(self, now: float) -> None:
        """Drop what is over."""
        for line in self._lines.values():
            line.forget(now)
