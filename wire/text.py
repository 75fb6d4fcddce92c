"""Formats names, durations, sizes and counts as text for terminals."""

from __future__ import annotations

import re
from typing import Optional

_HOSTILE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, limit: int = 200) -> str:
    """Return the text on one line, cut to at most `limit` characters. Characters that control a terminal or
    the direction of text are replaced.
    """
    clean = _HOSTILE.sub("\ufffd", text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def duration(seconds: Optional[float]) -> str:
    """Return a duration in seconds as text such as 42s, 3m05s, 2h10m or 4d02h; "-" for None."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600:02}h"


def memory(mib: int) -> str:
    """Return an amount of memory in MiB as text such as 512M, 1.5G or 2T."""
    if mib < 1024:
        return f"{mib}M"
    if mib < 1024 * 1024:
        return f"{mib / 1024:.3g}G"
    return f"{mib / 1024 / 1024:.3g}T"


def counted(number: float, thing: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs, 0.5 GPUs, 1,000 jobs."""
    return f"{number:,.12g} {thing}{'' if number == 1 else 's'}"


def decimal(value: float) -> str:
    """Return a number with one decimal, or a number below 1 with two significant digits: 1,234.5, 2.5, 0.25,
    0.04, 0.0. A positive number below 0.001 is shown as <0.001, a negative one above -0.001 as >-0.001.
    """
    size = abs(value)
    if not size:
        return "0.0"
    if size >= 1:
        return f"{value:,.1f}"
    if size >= 0.001:
        return f"{value:.2g}"
    return "<0.001" if value > 0 else ">-0.001"


def percent(value: float) -> str:
    """Return a percentage without decimals: 80 %, 0 %. A value between -1 and 1 is shown as by `decimal`: 0.4
    %.
    """
    return f"{decimal(value) if 0 < abs(value) < 1 else f'{value + 0.0:.0f}'} %"
