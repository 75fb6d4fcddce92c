"""Prints figures beside their limits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


def row(what: str, figure: str, bar: str = "") -> None:
    print(f"  {what:<66} {figure:>22}   {bar}".rstrip(), flush=True)


def spread(seconds: Sequence[float]) -> str:
    """Return the median and the 95th percentile as text, in milliseconds or microseconds."""
    ordered = sorted(seconds)
    p50, p95 = statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))]
    unit, scale = ("µs", 1e6) if p50 < 1e-3 else ("ms", 1e3)
    return f"{p50 * scale:.1f} / {p95 * scale:.1f} {unit}"
