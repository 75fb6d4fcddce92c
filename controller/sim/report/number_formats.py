"""Formats numbers, durations and the names of figures (such as the mean wait) for the report."""

from __future__ import annotations

from wire.text import duration

FIGURES: dict[str, str] = {
    "jobs": "Jobs that started and ended",
    "avebsld": "Mean bounded slowdown",
    "max_bsld": "Largest bounded slowdown",
    "mean_wait_s": "Mean wait",
    "p50_wait_s": "Median wait",
    "p95_wait_s": "95 % of jobs waited at most",
    "mean_flow_s": "Mean time from submit to end",
    "p99_flow_s": "99 % of jobs ended after at most",
    "max_flow_s": "Longest time from submit to end",
    "utilisation": "Utilisation",
    "fragmentation": "Capacity idle while jobs waited",
    "makespan_s": "First submit to last end",
    "fairness": "Fairness between users",
    "preemptions": "Preemptions",
    "gpu_hours_lost": "GPU-hours lost",
    "moves": "Moves to other nodes",
    "cpu_s": "CPU time of the simulator",
}

PARTS = frozenset({"utilisation", "fragmentation", "fairness"})
"""Figures that are fractions between 0 and 1."""

HIGHER = frozenset({"utilisation", "fairness"})
NEITHER = frozenset({"jobs", "cpu_s"})
"""Figures that do not say which run is better. For the figures in HIGHER, a higher value is better. For all
other figures, a lower value is better.
"""


def figure_name(key: str) -> str:
    """Return the readable name of a figure (a key of a run's results), such as "Mean wait"."""
    return FIGURES.get(key) or key.removesuffix("_s").replace("_", " ").capitalize()


def figure_text(key: str, value: float) -> str:
    """Return the value of a figure with its unit."""
    if key in PARTS and 0 <= value <= 1:
        return percent(value)
    if key == "cpu_s":
        return f"{value:.2f} s"
    if key.endswith("_s"):
        return span_text(value)
    return number(value)


def number(value: float) -> str:
    """Return a number as text, such as 12,345 or 3.14."""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def percent(part: float) -> str:
    """Return a fraction as text, such as 82 %. Values below 1 % and above 99 % have a decimal, such as 99.7
    %, except 0 % and 100 %.
    """
    value = part * 100
    digits = 0 if 1 <= value <= 99 or value in (0, 100) else 1
    return f"{value:.{digits}f} %"


def span_text(seconds: float) -> str:
    """Return seconds as text, such as 2h10m. Below ten seconds, a time that is not a whole number has one
    decimal.
    """
    return f"{seconds:.1f}s" if 0 < seconds < 10 and seconds != int(seconds) else duration(seconds)


def count(number_of: int, thing: str) -> str:
    """Return a number with its noun: 1 job, 12,345 jobs."""
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"
