"""The commands, side by side with a real Slurm."""

from __future__ import annotations

import pytest

from tests.clients import compare_jobs
from tests.clients.compare_with_slurm import EXPECTED, compare
from tests.clients.real_slurm import missing

NOT_HERE = missing()


@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
def test_answers_are_those_of_slurm() -> None:
    """Each call has the answer of Slurm, or is listed as different."""
    pairs = compare()
    assert len(pairs) > 100
    different = {pair.call: pair for pair in pairs if not pair.equal}
    assert [different[call] for call in different if call not in EXPECTED] == []
    assert set(different) == set(EXPECTED)


@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
def test_jobs_live_as_in_slurm() -> None:
    """Each call that submits, changes or ends a job has the answer of Slurm, or is listed as different."""
    pairs = list(compare_jobs.compare())
    assert len(pairs) > 170
    different = {pair.call: pair for pair in pairs if not pair.equal}
    assert [different[call] for call in different if call not in compare_jobs.EXPECTED] == []
