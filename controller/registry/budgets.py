"""Computes from scheduler.toml the budgets of projects, and the times at which the months begin in the time
zone of [scheduler].
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from controller.config import Config, ConfigProblem, problem_at
from controller.core.quota.budget_rules import Budget, BudgetAction, BudgetRules, Calendar

FIRST_YEAR, LAST_YEAR = 1970, 2120


def budget_rules_of(config: Config) -> BudgetRules:
    """Return the budgets of all projects, the prices, and the times at which the months begin."""
    section = config.budgets
    budgets = {
        name: Budget(each.gpu_hours, each.money, each.carry_over, BudgetAction(each.then))
        for name, project in config.projects.items()
        if (each := project.budget) is not None
    }
    # Compute the months only if there are budgets, because only budgets need them. Reports also need the
    # prices.
    return BudgetRules(
        budgets,
        section.gpu_hour,
        section.gpu_hour_per_model,
        section.currency,
        calendar_of(config.scheduler.time_zone) if budgets else Calendar(),
        section.cpu_hour,
        section.memory_gib_hour,
    )


@lru_cache(maxsize=4)
def calendar_of(time_zone: str) -> Calendar:
    """Return the times at which the months from 1970 to 2120 begin in a time zone.

    The times are computed when the configuration is read, because the engine must not read the time zone
    files, and because a replay must use the same times.
    """
    zone = ZoneInfo(time_zone)
    months = ((year, month) for year in range(FIRST_YEAR, LAST_YEAR + 1) for month in range(1, 13))
    starts = (datetime(year, month, 1, tzinfo=zone).timestamp() for year, month in months)
    return Calendar(tuple(starts), FIRST_YEAR, 1)


def budgets_without_price(config: Config) -> Iterator[ConfigProblem]:
    """Yield a warning for each budget in money, if [budgets] has no prices. Such a budget can never be used
    up.
    """
    section = config.budgets
    prices = section.gpu_hour, section.cpu_hour, section.memory_gib_hour
    if any(prices) or any(section.gpu_hour_per_model.values()):
        return
    for name, project in config.projects.items():
        if project.budget is not None and project.budget.money is not None:
            message = "has no effect, because no resource has a price"
            hint = "Set [budgets] gpu_hour, gpu_hour_per_model, cpu_hour or memory_gib_hour."
            yield problem_at(config.source, ("projects", name, "budget", "money"), message, hint)
