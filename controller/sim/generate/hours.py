"""When people come: the shape of a day and of a week. Time 0 is a Monday, 00:00."""

from __future__ import annotations

from controller.sim.generate.dice import Dice

HOUR_S, DAY_S = 3_600.0, 86_400.0

HOURS = (
    *(0.40, 0.30, 0.24, 0.20, 0.18, 0.20, 0.26, 0.40),
    *(0.75, 1.25, 1.60, 1.65, 1.35, 1.50, 1.75, 1.75),
    *(1.65, 1.45, 1.15, 0.95, 0.95, 1.00, 0.90, 0.60),
)
"""How busy each hour begins; in between it goes straight from one to the next."""

DAYS = (1.05, 1.15, 1.15, 1.10, 0.95, 0.42, 0.38)
"""How busy Monday to Sunday are."""

PEAK = max(HOURS) * max(DAYS)


def rate(moment_s: float) -> float:
    """How many come at that moment, in proportion to any other."""
    day, second = divmod(moment_s, DAY_S)
    hour, part = divmod(second / HOUR_S, 1.0)
    begins, ends = HOURS[int(hour) % 24], HOURS[(int(hour) + 1) % 24]
    return DAYS[int(day) % 7] * (begins + (ends - begins) * part)


def arrival(dice: Dice, span_s: float) -> float:
    """When one arrival of an inhomogeneous Poisson process happens, by thinning a homogeneous one.

    Given how many arrivals there are, those of a Poisson process are independent: each can be drawn alone.
    """
    while True:
        moment = dice.roll() * span_s
        if dice.roll() * PEAK < rate(moment):
            return moment
