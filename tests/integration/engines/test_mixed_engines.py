"""Slurm, Docker, SSH hosts and a cloud pool run jobs of one controller at once, and each is killed."""

from __future__ import annotations

import pytest

from tests.clients.real_slurm import missing
from tests.integration.engines.virtual_machines import lacking
from tests.mixed_engines.driver import run

NOT_HERE = missing() or lacking()


@pytest.mark.engines
@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there")
def test_kills_of_all_engines_double_and_leave_nothing() -> None:
    """No part doubles a job or leaves anything. SSH hosts and the pool end no job wrongly. docs/engines.md
    describes the jobs that end wrongly after a kill of slurmctld or dockerd.
    """
    report = run(count=40)
    assert [each for row in report.rows for each in (*row.doubled, *row.left)] == []
    assert report.left == []
    assert [each for row in report.rows if row.part.name in ("ssh", "ec2") for each in row.lost] == []
    assert all(row.running for row in report.rows)
