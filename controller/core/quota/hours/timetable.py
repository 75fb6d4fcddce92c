"""The tables [hours.NAME]: quotas and share weights that replace the usual ones during some hours of the
week.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.quota.hours.week_hours import QUARTER_S, QUARTERS_SEARCHED, WEEK, WeekHours
from controller.core.quota.usage_counters import TenantKey
from wire.cluster.quota import Quota

QUARTER = QUARTER_S // 60
"""The length of a quarter of an hour, in minutes."""


@dataclass(frozen=True, slots=True)
class HoursTable:
    """One table [hours.NAME]: the hours in which the table is in force, and the quotas and weights for these
    hours.
    """

    name: str
    hours: WeekHours
    quotas: Mapping[TenantKey, Quota] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    """The fair-share weights that the table sets, by name of the share as in [fair_share] weights."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """The tables [hours.NAME] in the order of scheduler.toml. If two tables in force set the same limit or
    weight, the first of them applies.

    Algorithm of `next_change`: try each quarter of an hour in the next eight days. The result is exact,
    because hours begin and end at full quarters, and every time zone differs from UTC by a whole number of
    quarters.

    Cost: `in_force` converts the time once for each table. `next_change` calls `in_force` at most 769 times.

    Example: the only table is `night` with the hours "20:00-08:00". At 19:00 `in_force` returns () and
    `next_change` returns 20:00. At 20:00 `in_force` returns ("night",) and `next_change` returns 08:00.
    """

    tables: tuple[HoursTable, ...] = ()

    def in_force(self, now: float) -> tuple[str, ...]:
        """Return the names of the tables in force at the time `now`, in the order of scheduler.toml."""
        return tuple(each.name for each in self.tables if each.hours.is_open(now))

    def next_change(self, now: float) -> float:
        """Return the first time after `now` at which the set of tables in force changes. Return infinity if
        it does not change in the next eight days.
        """
        if not self.tables:
            return math.inf
        present, first = self.in_force(now), int(now // QUARTER_S) + 1
        later = (float(QUARTER_S * quarter) for quarter in range(first, first + QUARTERS_SEARCHED))
        return next((at for at in later if self.in_force(at) != present), math.inf)

    def named(self, names: tuple[str, ...]) -> tuple[HoursTable, ...]:
        """Return the tables with these names. A name without a table comes from an earlier configuration and
        is ignored.
        """
        return tuple(each for each in self.tables if each.name in names)

    def combinations(self) -> list[tuple[HoursTable, ...]]:
        """Return every set of tables that are in force together at some time of the week."""
        found = {
            tuple(each.name for each in self.tables if each.hours.covers(minute)): None
            for minute in range(0, WEEK, QUARTER)
        }
        return [self.named(names) for names in found]

    @property
    def changes_per_week(self) -> int:
        """An upper bound on the number of times that the set of tables in force changes in one week."""
        return 2 * sum(len(each.hours.windows) for each in self.tables)


NO_TIMETABLE = Timetable()
