"""Computes the cost of billed time at the present prices in [budgets] of scheduler.toml.

1. Take the prices as exact fractions of the decimal numbers in scheduler.toml.
2. Multiply the prices by the billed times, which are integers.
3. Add the fractions, and convert only the sum to a floating-point number.

Exact sums do not depend on the groups, so a report by user has the same total cost as a report by project.

Example: 3 ms of a GPU at 1.2 an hour and 1 ms at 1.2 an hour cost exactly as much as 4 ms at 1.2 an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from controller.core.quota.budget_rules import BudgetRules
from controller.core.state.state import State
from controller.store.billed_usage import BilledTime

UNKNOWN = "(unknown)"
HOUR_MS = 3_600_000
GIB_HOUR_MIB_S = 1_024 * 3_600


@dataclass(slots=True)
class Bill:
    """The cost of billed time. `gpu_ms` and `gpus` are the GPU time in milliseconds and its cost, by the
    names of the GPU models; `cpu` and `memory` are the cost of CPU time and memory.
    """

    gpu_ms: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, Fraction] = field(default_factory=dict)
    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)

    @property
    def money(self) -> Fraction:
        """Return the total cost."""
        return sum(self.gpus.values(), self.cpu + self.memory)


def bill_of(state: State, times: Iterable[BilledTime]) -> Bill:
    """Return the bill for these billed times."""
    rules, bill, cpu_ms, memory_mib_s = state.budgets.rules, Bill(), 0, 0
    for each in times:
        model, price = _model(state, rules, each.node)
        bill.gpu_ms[model] = bill.gpu_ms.get(model, 0) + each.gpu_ms
        bill.gpus[model] = bill.gpus.get(model, Fraction(0)) + each.gpu_ms * price / HOUR_MS
        cpu_ms += each.cpu_ms
        memory_mib_s += each.memory_mib_s
    bill.cpu = cpu_ms * _exact(rules.cpu_price) / HOUR_MS
    bill.memory = memory_mib_s * _exact(rules.memory_price) / GIB_HOUR_MIB_S
    return bill


def _model(state: State, rules: BudgetRules, node: str) -> tuple[str, Fraction]:
    """Return the names of the GPU models of a node as one text, and the price of a GPU-hour on this node: the
    mean of the prices of its GPUs.
    """
    known = state.nodes.by_name.get(node)
    models = [gpu.model for gpu in known.facts.gpus] if known is not None else []
    if not models:
        return UNKNOWN, _exact(rules.price)
    names = ", ".join(sorted(set(models)))
    return names, sum((_exact(rules.price_of(model)) for model in models), Fraction(0)) / len(models)


def _exact(price: float) -> Fraction:
    """Return the price exactly as written in scheduler.toml, such as 12/10 for 1.2."""
    return Fraction(repr(price))
