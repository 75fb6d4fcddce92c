"""Formats numbers and names of figures."""

from __future__ import annotations

from wire.text import duration

FIGURES: dict[str, str] = {
    "jobs": "Jobs that ran to an end",
    "avebsld": "Mean bounded slowdown",
    "max_bsld": "Worst bounded slowdown",
    "mean_wait_s": "Mean wait",
    "p50_wait_s": "Median wait",
    "p95_wait_s": "Wait of 95 of 100, at most",
    "mean_flow_s": "Mean time from submit to end",
    "max_flow_s": "Longest time from submit to end",
    "utilisation": "Utilisation",
    "fragmentation": "Idle while jobs waited",
    "makespan_s": "Makespan",
    "fairness": "Fairness between users",
    "preemptions": "Preemptions",
    "gpu_hours_lost": "GPU-hours lost",
    "moves": "Moves",
    "cpu_s": "CPU time of the simulator",
}

PARTS = frozenset({"utilisation", "fragmentation", "fairness"})
"""Figures that are fractions between 0 and 1."""

HIGHER = frozenset({"utilisation", "fairness"})
NEITHER = frozenset({"jobs", "cpu_s"})
"""Figures that do not show which run is better. For figures that are not listed here or above, less is
better."""


def figure_name(key: str) -> str:
    """The name of a figure."""
    return FIGURES.get(key) or key.removesuffix("_s").replace("_", " ").capitalize()


def figure_text(key: str, value: float) -> str:
    """A figure with its unit."""
    if key in PARTS and 0 <= value <= 1:
        return percent(value)
    if key == "cpu_s":
        return f"{value:.2f} s"
    if key.endswith("_s"):
        return span_text(value)
    return number(value)


def number(value: float) -> str:
    """A number as text, such as 12,345 or 3.14, with three significant digits below 1000."""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def percent(part: float) -> str:
    """A fraction as text, such as 82 %, or 99.7 % near 100 %."""
    value = part * 100
    digits = 0 if 1 <= value <= 99 or value in (0, 100) else 1
    return f"{value:.{digits}f} %"


def span_text(seconds: float) -> str:
    """Seconds as text, such as 2h10m. Below ten seconds it has one decimal."""
    return f"{seconds:.1f}s" if 0 < seconds < 10 and seconds != int(seconds) else duration(seconds)


def count(number_of: int, thing: str) -> str:
    """A number with its noun: 1 job, 12,345 jobs."""
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"
