"""Folded rows of the job list: which rows are hidden, and which jobs an action changes."""

from __future__ import annotations

from dataclasses import replace

from tests.tui.recorded import jobs
from tests.tui.screens import Screen, press, settled
from tui.data.job_folding import JobFolding
from wire.api.jobs import JobView
from wire.names import JobState

SAMPLE = jobs()[0]


def job(number: int, state: JobState, index: int | None = None, **more: object) -> JobView:
    plain = replace(SAMPLE, id=number, label=str(number), state=state, array=None, index=index)
    return replace(plain, **more)  # type: ignore[arg-type]


def folded(*members: JobView) -> JobFolding:
    folding = JobFolding()
    folding.on = True
    folding.update(members)
    return folding


def test_an_array_is_shown_in_the_row_of_its_first_unended_job() -> None:
    elements = [
        job(5, JobState.COMPLETED, 0, array=5),
        job(6, JobState.RUNNING, 1, array=5),
        job(7, JobState.FAILED, 2, array=5),
    ]
    folding = folded(*elements, job(9, JobState.RUNNING))
    assert folding.hidden == {5, 7}
    row = folding.rows[6]
    assert (row.label, row.progress, row.jobs) == ("5_*", "2 of 3, 1 failed", (5, 6, 7))


def test_a_retried_job_of_a_workload_counts_once() -> None:
    folding = folded(
        job(1, JobState.COMPLETED, workload=3, task="prepare"),
        job(2, JobState.FAILED, 0, array=2, workload=3, task="train"),
        job(4, JobState.COMPLETED, 0, array=4, workload=3, task="train"),
    )
    assert (folding.rows[1].label, folding.rows[1].progress) == ("w3", "2 of 2")
    assert folding.hidden == {2, 4}


def test_nothing_is_hidden_without_folding() -> None:
    folding = folded(job(5, JobState.RUNNING, 0, array=5), job(6, JobState.RUNNING, 1, array=5))
    folding.on = False
    folding.update([])
    assert (folding.rows, folding.hidden) == ({}, frozenset())


async def test_a_key_folds_the_list_and_unfolds_it() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        before = len(screen.model.jobs)
        of_arrays = [each.array for each in jobs() if each.array is not None]
        assert of_arrays
        await press(pilot, "z")
        assert len(screen.model.jobs) == before - len(of_arrays) + len(set(of_arrays))
        assert f"{of_arrays[0]}_*" in screen.text()
        await press(pilot, "z")
        assert len(screen.model.jobs) == before
