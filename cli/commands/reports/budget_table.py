"""The table of the budgets of projects, for corral report budget."""

from __future__ import annotations

from cli.output.formats import Column, Table
from wire.api.service.reports import BudgetView
from wire.text import decimal, duration, percent


def budget_table(now: float) -> Table[BudgetView]:
    """Return the table of the usage of each project in the present month, compared with its budget. `now` is
    the present time in seconds since 1970.
    """
    return Table(
        [
            Column("PROJECT", lambda each: each.project, narrow=8),
            Column("MONTH", lambda each: each.month, rank=3),
            Column("USED", lambda each: percent(each.percent).replace(" ", ""), right=True),
            Column("GPU-HOURS", lambda each: _of(each.gpu_hours, each.gpu_hours_limit), rank=1, right=True),
            Column("MONEY", lambda each: _of(each.money, each.money_limit), rank=2, right=True),
            Column("CURRENCY", lambda each: each.currency, rank=6),
            Column("THEN", lambda each: each.then, rank=4),
            Column("ENDS IN", lambda each: duration(max(0.0, each.ends_at - now)), rank=5, right=True),
        ],
        name=lambda each: each.project,
        kind=BudgetView,
    )


def _of(used: float, limit: float | None) -> str:
    return decimal(used) if limit is None else f"{decimal(used)}/{decimal(limit)}"
