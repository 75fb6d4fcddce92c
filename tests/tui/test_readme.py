"""The tables of tests/tui/README.md: each named test exists."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def named() -> list[tuple[str, str]]:
    """The files and functions that the tables name."""
    return re.findall(r"`(/?[\w/]+\.py)::(\w+)`", (HERE / "README.md").read_text())


def test_every_named_test_exists() -> None:
    missing = []
    for path, function in named():
        file = ROOT / path.removeprefix("/") if path.startswith("/") else HERE / path
        if not file.exists() or f"def {function}(" not in file.read_text():
            missing.append(f"{path}::{function}")
    assert missing == []
    assert len(named()) > 40


def test_every_promise_has_a_test() -> None:
    rows = [line for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "| feature"))]
    assert len(promises) == 32
    assert all("::" in row or "tests.tui.measure" in row for row in promises)
