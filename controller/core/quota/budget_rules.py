"""The rules of budgets: the monthly budget of each project, the prices, and the months."""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.cluster.node_table import most_specific
from controller.core.model.job import NEVER


class BudgetAction(enum.Enum):
    """The effect on the waiting jobs of a project when its budget is used up (`then` of the budget in
    scheduler.toml).
    """

    ALERT = "alert"
    """An event is recorded; the waiting jobs are not affected."""
    LOW = "low"
    """The jobs of the project come after the jobs of all other projects."""
    STOP = "stop"
    """The jobs of the project wait until the next month."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The monthly budget of a project, in GPU-hours and in money. None means no limit."""

    gpu_hours: float | None = None
    money: float | None = None
    carry_over: float = 0.0
    """The unused part of the budget is carried over to the next month, but at most this fraction (0 to 1) of
    the budget.
    """
    then: BudgetAction = BudgetAction.ALERT


@dataclass(frozen=True, slots=True)
class Calendar:
    """The times at which consecutive months begin in one time zone, in seconds since 1970. `starts[0]` is the
    beginning of the month `month` (1 to 12) of the year `year`.
    """

    starts: tuple[float, ...] = (0.0,)
    year: int = 1970
    month: int = 1

    def index(self, at: float) -> int:
        """Return the index in `starts` of the month that contains the time `at`."""
        return max(0, bisect_right(self.starts, at) - 1)

    def start(self, index: int) -> float:
        """Return the time at which the month with this index in `starts` begins, in seconds since 1970.
        Return NEVER for a month after the last one.
        """
        return self.starts[index] if index < len(self.starts) else NEVER

    def name(self, index: int) -> str:
        """Return the name of the month with this index in `starts`, such as 2026-11."""
        months = self.year * 12 + self.month - 1 + index
        return f"{months // 12:04}-{months % 12 + 1:02}"


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """The budgets of projects, and the prices of GPU-hours, CPU-hours and memory, from scheduler.toml."""

    budgets: Mapping[str, Budget] = field(default_factory=dict)
    price: float = 0.0
    """The price of a GPU-hour of a model that is not in `price_per_model`."""
    price_per_model: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""
    calendar: Calendar = field(default_factory=Calendar)
    cpu_price: float = 0.0
    """The price of one allocated CPU for one hour."""
    memory_price: float = 0.0
    """The price of one GiB of allocated memory for one hour."""

    @property
    def priced(self) -> bool:
        """True if GPUs, CPUs or memory have a price."""
        prices = self.price, self.cpu_price, self.memory_price, *self.price_per_model.values()
        return any(prices)

    def price_of(self, model: str) -> float:
        """Return the price of one hour on a GPU of this model, in `currency`."""
        name = most_specific(self.price_per_model, model)
        return self.price if name is None else self.price_per_model[name]


NO_BUDGETS = BudgetRules()
