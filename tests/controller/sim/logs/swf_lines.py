"""Logs in the Standard Workload Format, written for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Given = tuple[int, float, float, int, float]
"""number, submit, run, size, estimate"""


def line(
    number: int,
    submit: float = 0,
    run: float = 10,
    allocated: int = 1,
    requested: int | None = None,
    estimate: float = 10,
    user: int = 1,
) -> str:
    """One line; fields that are not given have valid values."""
    size = allocated if requested is None else requested
    return f"{number} {submit} -1 {run} {allocated} -1 -1 {size} {estimate} -1 1 {user} 1 -1 1 -1 -1 -1"


def write(path: Path, jobs: Iterable[Given], processors: int) -> Path:
    """A whole log."""
    lines = [f"; MaxProcs: {processors}"]
    lines += [line(number, submit, run, size, None, estimate) for number, submit, run, size, estimate in jobs]
    path.write_text("\n".join(lines) + "\n")
    return path
