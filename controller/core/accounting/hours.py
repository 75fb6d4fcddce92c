"""Keeps the counted GPU-hours and waits. The last KEPT_HOURS hours are kept one by one; older hours are added
up to days.

A period is an hour or a day with the figures of all tenants. A tenant is a user in a project. Periods are
stored as notes (database rows) of the kind NOTE. The name of a note is `hour/N` or `day/N`, where N counts
the hours or days since 1970.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controller.core.accounting.wait_histogram import Waits
from controller.core.model.rows import NoteRow
from wire.codec import dumps

NOTE = "accounting"
HOUR_S, DAY_H = 3_600, 24
KEPT_HOURS = 8 * DAY_H
"""The figures of this many hours are kept for each hour. Older figures are added to their day."""
KEPT_DAYS = 93
"""Figures older than this many days are deleted."""
TENANTS = 2_000
"""The most tenants of one period, and also the most queues of one period. All further tenants or queues are
counted together under the name OTHERS.
"""

_zeros = partial(defaultdict[str, float], float)

Tenant = tuple[str, str]
"""The project and the user."""
OTHERS: Tenant = ("(others)", "(others)")


@dataclass(slots=True)
class TenantHours:
    """The GPU-hours of a tenant in one period (hour or day), and the waits of its jobs. The wait of a job
    counts in the period of its first start.
    """

    got: float = 0.0
    entitled: float = 0.0
    demanded: float = 0.0
    """The GPU-hours of running and waiting jobs, without jobs of the priority SCAVENGER."""
    scavenged: float = 0.0
    """The GPU-hours of jobs with the priority SCAVENGER. These jobs use only GPUs that no other job needs."""
    longest_wait_s: float = 0.0
    waits: Waits = field(default_factory=Counter)

    def add_wait(self, wait_s: float, number: int) -> None:
        """Add the wait of one job. `number` is the bin of the wait (`bin_of`)."""
        self.waits[number] += 1
        self.longest_wait_s = max(self.longest_wait_s, wait_s)

    def add(self, other: TenantHours) -> None:
        """Add the figures of another period or of another tenant to these figures."""
        self.got += other.got
        self.entitled += other.entitled
        self.demanded += other.demanded
        self.scavenged += other.scavenged
        self.longest_wait_s = max(self.longest_wait_s, other.longest_wait_s)
        self.waits.update(other.waits)

    def dump(self) -> list[Any]:
        """Return the figures as a list that can be written as JSON."""
        figures = (self.got, self.entitled, self.demanded, self.scavenged, self.longest_wait_s)
        return [*(round(each, 6) for each in figures), {str(each): n for each, n in self.waits.items()}]

    @classmethod
    def load(cls, stored: list[Any]) -> TenantHours:
        """Return the figures that `dump` has converted to the list `stored`."""
        waits = Counter({int(each): count for each, count in stored[5].items()})
        return cls(stored[0], stored[1], stored[2], stored[3], stored[4], waits)


@dataclass(slots=True)
class QueueFigures:
    """The figures of one queue: its jobs that started or ended in one period (hour or day). A job counts as
    started at its first start.
    """

    started: int = 0
    completed: int = 0
    failed: int = 0
    """Jobs that ended in any state except COMPLETED."""
    with_target: int = 0
    """Jobs that started while the queue had a wait target ([queues.NAME] wait_target_s)."""
    in_target: int = 0
    """Started jobs that had waited no longer than the wait target."""
    longest_wait_s: float = 0.0
    waits: Waits = field(default_factory=Counter)

    @property
    def ended(self) -> int:
        return self.completed + self.failed

    def add_wait(self, wait_s: float, number: int) -> None:
        """Add the wait of one job. `number` is the bin of the wait (`bin_of`)."""
        self.waits[number] += 1
        self.longest_wait_s = max(self.longest_wait_s, wait_s)

    def add(self, other: QueueFigures) -> None:
        """Add the figures of another period."""
        self.started += other.started
        self.completed += other.completed
        self.failed += other.failed
        self.with_target += other.with_target
        self.in_target += other.in_target
        self.longest_wait_s = max(self.longest_wait_s, other.longest_wait_s)
        self.waits.update(other.waits)

    def dump(self) -> list[Any]:
        """Return the figures as a list that can be written as JSON."""
        counts = (self.started, self.completed, self.failed, self.with_target, self.in_target)
        waits = {str(each): count for each, count in self.waits.items()}
        return [*counts, round(self.longest_wait_s, 6), waits]

    @classmethod
    def load(cls, stored: list[Any]) -> QueueFigures:
        """Return the figures that `dump` has converted to the list `stored`."""
        waits = Counter({int(each): count for each, count in stored[6].items()})
        return cls(stored[0], stored[1], stored[2], stored[3], stored[4], stored[5], waits)


@dataclass(slots=True)
class Period:
    """The figures of one hour or one day. `capacity`, `idle` and `lost` are in GPU-hours."""

    capacity: float = 0.0
    """The GPU-hours of all GPUs, except idle GPUs that take no new jobs."""
    tenants: dict[Tenant, TenantHours] = field(default_factory=dict)
    idle: defaultdict[str, float] = field(default_factory=_zeros)
    """Idle GPU-hours by cause."""
    lost: defaultdict[str, float] = field(default_factory=_zeros)
    """GPU-hours of lost work, by cause. The work was lost because an attempt ended without saving it."""
    queues: dict[str, QueueFigures] = field(default_factory=dict)

    def queue(self, name: str) -> QueueFigures:
        """Return the figures of a queue in this period, all zero on first use. A queue above the limit
        TENANTS gets the figures of OTHERS.
        """
        found = self.queues.get(name)
        if found is None:
            key = name if len(self.queues) < TENANTS else OTHERS[0]
            found = self.queues.setdefault(key, QueueFigures())
        return found

    def tenant(self, tenant: Tenant) -> TenantHours:
        """Return the figures of a tenant in this period, all zero on first use. A tenant above the limit
        TENANTS gets the figures of OTHERS.
        """
        found = self.tenants.get(tenant)
        if found is None:
            key = tenant if len(self.tenants) < TENANTS else OTHERS
            found = self.tenants.setdefault(key, TenantHours())
        return found

    def add(self, other: Period) -> None:
        """Add the figures of another period."""
        self.capacity += other.capacity
        for cause, hours in other.idle.items():
            self.idle[cause] += hours
        for cause, hours in other.lost.items():
            self.lost[cause] += hours
        for tenant, figures in other.tenants.items():
            self.tenant(tenant).add(figures)
        for name, queue in other.queues.items():
            self.queue(name).add(queue)

    def dump(self) -> dict[str, Any]:
        """Return the figures as data that can be written as JSON."""
        return {
            "capacity": round(self.capacity, 6),
            "idle": {cause: round(hours, 6) for cause, hours in self.idle.items()},
            "lost": {cause: round(hours, 6) for cause, hours in self.lost.items()},
            "tenants": [[*tenant, *hours.dump()] for tenant, hours in self.tenants.items()],
            "queues": {name: figures.dump() for name, figures in self.queues.items()},
        }

    @classmethod
    def load(cls, body: dict[str, Any]) -> Period:
        """Return the figures that `dump` has converted to `body`."""
        tenants = {(each[0], each[1]): TenantHours.load(each[2:]) for each in body["tenants"]}
        queues = {name: QueueFigures.load(each) for name, each in body.get("queues", {}).items()}
        return cls(body["capacity"], tenants, _zeros(body["idle"]), _zeros(body["lost"]), queues)


class Periods:
    """The kept periods: each of the last KEPT_HOURS hours, and before these hours each day that is at most
    `kept_days` days old.

    Memory: at most (KEPT_HOURS + kept_days) x TENANTS figures, because a period has figures only for tenants
    with jobs in this period.
    """

    def __init__(self, kept_days: int = KEPT_DAYS) -> None:
        self.kept_days = kept_days
        self._hours: dict[int, Period] = {}
        self._days: dict[int, Period] = {}
        self._changed: dict[tuple[str, int], None] = {}
        """The periods, as ("hour" or "day", number), that have changed since the last call of `take_changed`.
        """

    def at(self, time: float) -> Period:
        """Return the figures of the hour that contains `time`, all zero on first use. The caller adds to
        these figures, so the hour counts as changed.
        """
        hour = int(time // HOUR_S)
        found = self._hours.get(hour)
        if found is None:
            found = self._hours[hour] = Period()
            self._merge_old(hour)
        self._changed["hour", hour] = None
        return found

    def since(self, since: float, until: float) -> tuple[float, Period]:
        """Return (begin, sum) of all periods that overlap the time from `since` to `until`. `begin` is the
        begin of the first of these periods. Without such a period, `begin` is `until`.
        """
        total, begin = Period(), until
        for starts_at, ends_at, period in self._all():
            if ends_at > since and starts_at < until:
                total.add(period)
                begin = min(begin, starts_at)
        return begin, total

    def take_changed(self) -> list[NoteRow]:
        """Return the database rows of the periods that have changed since the last call."""
        rows = [
            NoteRow(NOTE, f"{scale}/{number}", self._body(scale, number)) for scale, number in self._changed
        ]
        self._changed.clear()
        return rows

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Load the stored periods. Skip notes of other kinds, and periods that are already in memory."""
        for note in notes:
            if note.kind == NOTE and note.body is not None:
                scale, _, number = note.name.partition("/")
                self._scale(scale).setdefault(int(number), Period.load(json.loads(note.body)))

    def _all(self) -> Iterator[tuple[float, float, Period]]:
        for number, period in self._days.items():
            yield number * DAY_H * HOUR_S, (number + 1) * DAY_H * HOUR_S, period
        for number, period in self._hours.items():
            yield number * HOUR_S, (number + 1) * HOUR_S, period

    def _scale(self, name: str) -> dict[int, Period]:
        return self._hours if name == "hour" else self._days

    def _body(self, scale: str, number: int) -> str | None:
        found = self._scale(scale).get(number)
        return None if found is None else dumps(found.dump())

    def _merge_old(self, hour: int) -> None:
        """Move the figures of hours older than KEPT_HOURS into their days, and delete days older than
        `self.kept_days`. `hour` is the number of the present hour.
        """
        for old in [each for each in self._hours if each <= hour - KEPT_HOURS]:
            self._days.setdefault(old // DAY_H, Period()).add(self._hours.pop(old))
            self._changed["hour", old] = self._changed["day", old // DAY_H] = None
        for old in [each for each in self._days if each < hour // DAY_H - self.kept_days]:
            del self._days[old]
            self._changed["day", old] = None
