"""Parses the --array option, such as `0-99%4`: the indices, and how many elements may run at a time."""

from __future__ import annotations

from typing import Optional

MAX_ARRAY = 10_000
MAX_TEXT = 4_096


def array_concurrency_limit(text: str) -> Optional[int]:
    """Return how many elements of an array may run at the same time: 8 for `0-99%8`. None means no limit."""
    most = text.partition("%")[2].strip()
    return int(most) if most else None


def array_indices(text: str) -> list[int]:
    """Return the sorted indices of an array text such as `0-9`, `1,3,7`, `0-20:5` or `0-99%8`. Raise
    ValueError for any other text.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"must be at most {MAX_TEXT} characters long")
    text, percent, most = text.partition("%")
    most = most.strip()
    if percent and not (most.isascii() and most.isdigit() and int(most[:9]) > 0 and len(most) <= 9):
        raise ValueError(f"cannot read {'%' + most!r}; write how many elements may run at once: 0-99%8")
    seen: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.strip().partition(":")
        low_text, dash, high_text = span.partition("-")
        numbers = [low_text] + ([high_text] if dash else []) + ([step_text] if step_text else [])
        if not all(number.isascii() and number.isdigit() and len(number) <= 9 for number in numbers):
            raise ValueError(f"cannot read {part!r}; write indices like 0-9, 1,3,7 or 0-20:5")
        low, step = int(low_text), int(step_text or 1)
        high = int(high_text) if dash else low
        if high < low or step < 1:
            raise ValueError(f"{part!r} counts backwards or has a step of 0")
        if (high - low) // step >= MAX_ARRAY or len(seen) > MAX_ARRAY:
            raise ValueError(f"has more than {MAX_ARRAY} elements")
        seen.update(range(low, high + 1, step))
    if len(seen) > MAX_ARRAY:
        raise ValueError(f"has more than {MAX_ARRAY} elements")
    return sorted(seen)
