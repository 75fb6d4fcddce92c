"""Slurm, Docker, SSH hosts and a cloud pool run jobs of one controller at once, and each is killed."""

from __future__ import annotations

import pytest

from tests.clients.real_slurm import missing
from tests.integration.engines.virtual_machines import lacking
from tests.mixed_engines.driver import run

NOT_HERE = missing() or lacking()


@pytest.mark.engines
@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there")
def test_kills_of_all_engines_lose_double_and_leave_nothing() -> None:
    report = run(count=40)
    assert report.broken == []
    assert all(row.running for row in report.rows)
