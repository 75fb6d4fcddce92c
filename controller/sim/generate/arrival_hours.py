"""Defines how often jobs are submitted at each hour of the day and on each weekday. Time 0 is Monday,
00:00."""

from __future__ import annotations

from controller.sim.generate.random_numbers import RandomStream

HOUR_S, DAY_S = 3_600.0, 86_400.0

HOURS = (
    *(0.40, 0.30, 0.24, 0.20, 0.18, 0.20, 0.26, 0.40),
    *(0.75, 1.25, 1.60, 1.65, 1.35, 1.50, 1.75, 1.75),
    *(1.65, 1.45, 1.15, 0.95, 0.95, 1.00, 0.90, 0.60),
)
"""The relative rate of submits at the start of each hour of a day. Between two hours the rate is interpolated
linearly."""

DAYS = (1.05, 1.15, 1.15, 1.10, 0.95, 0.42, 0.38)
"""The relative rate of submits on each weekday, Monday first."""

PEAK = max(HOURS) * max(DAYS)


def arrival_rate(moment_s: float) -> float:
    """Return how often jobs are submitted at the time `moment_s`, in seconds since Monday, 00:00. The rate
    has no unit, because only the ratio of two rates matters."""
    day, second = divmod(moment_s, DAY_S)
    hour, part = divmod(second / HOUR_S, 1.0)
    begins, ends = HOURS[int(hour) % 24], HOURS[(int(hour) + 1) % 24]
    return DAYS[int(day) % 7] * (begins + (ends - begins) * part)


def draw_arrival(rng: RandomStream, span_s: float) -> float:
    """Return a random time from 0 to `span_s` seconds. Times with a high arrival rate are more likely.

    1. Draw a time at random, all times equally likely.
    2. Accept the time with the probability rate / highest rate. If it is not accepted, repeat step 1.
    """
    while True:
        moment = rng.uniform() * span_s
        if rng.uniform() * PEAK < arrival_rate(moment):
            return moment
