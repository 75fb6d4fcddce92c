"""The commands, side by side with a real Slurm."""

from __future__ import annotations

import pytest

from tests.clients import compare_jobs
from tests.clients.compare_with_slurm import EXPECTED, Pair, compare
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


@pytest.mark.engines
@pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
def test_jobs_live_as_in_slurm() -> None:
    """Each call that submits, changes or ends a job has the answer of Slurm, or is listed as different."""
    wrong = _unexpected()
    if wrong:
        # Because Slurm's accounting lags behind on a busy host, and then has fewer rows.
        again = _unexpected()
        wrong = {call: again[call] for call in wrong if call in again}
    assert list(wrong.values()) == []


def _unexpected() -> dict[str, Pair]:
    """Run all calls. Return those whose answers differ although they are not listed as different."""
    pairs = list(compare_jobs.compare())
    assert len(pairs) > 220
    return {pair.call: pair for pair in pairs if not pair.equal and pair.call not in compare_jobs.EXPECTED}
