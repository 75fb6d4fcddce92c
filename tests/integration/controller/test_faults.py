"""A short run of `make faults`."""

from __future__ import annotations

import pytest

from tests.integration.controller.faults import run


@pytest.mark.slow
def test_guarantees_hold_under_random_kills_and_load() -> None:
    report = run(seed=2, seconds=5.0)
    print(report)
    assert report.broken == []
    assert report.tried.total() >= 3
    assert report.ended["completed"] > report.spoilt.total()
