"""Folded rows of the job list: which rows are hidden, and which jobs an action changes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tui.recorded import jobs
from tests.tui.screens import Screen, press, settled
from tui.data.lists.cluster_lists import job_listing
from tui.data.lists.job_listing import JobListing
from wire.api.jobs import JobGroup, JobView
from wire.names import JobState

SAMPLE = jobs()[0]
GROUP = JobGroup(5, "array", "5", "a", "ada", "", "", 50, 0.0, 4, 0, 2, 1, 1, 0)


def job(number: int, state: JobState, index: int | None = None, **more: object) -> JobView:
    plain = replace(SAMPLE, id=number, label=str(number), state=state, array=None, index=index)
    return replace(plain, **more)  # type: ignore[arg-type]


def folded(*members: JobView) -> JobListing:
    listing = job_listing()
    listing.put(members)
    return listing


def shown(listing: JobListing) -> list[int]:
    return sorted(job.id for job in listing)


def progress(listing: JobListing, number: int) -> str:
    row = listing.folding.row(number)
    assert row is not None
    return row.progress


ELEMENTS = [
    job(5, JobState.COMPLETED, 0, array=5),
    job(6, JobState.RUNNING, 1, array=5),
    job(7, JobState.FAILED, 2, array=5),
    job(8, JobState.RUNNING, 3, array=5),
]


def test_an_array_is_shown_in_the_row_of_its_first_running_job() -> None:
    listing = folded(*ELEMENTS, job(9, JobState.RUNNING))
    assert shown(listing) == [6, 9]
    row = listing.folding.row(6)
    assert row is not None
    assert (row.label, row.progress, row.gpus) == ("5_*", "2 of 4, 1 failed", 2 * SAMPLE.gpus)
    listing.follow(6)
    assert [each.id for each in listing.chosen()] == [5, 6, 7, 8]


def test_an_action_on_a_filtered_row_is_for_the_jobs_that_pass_the_filter() -> None:
    listing = folded(*ELEMENTS)
    listing.narrow("state:failed")
    assert shown(listing) == [7], "the row is that of a job that passes"
    listing.follow(7)
    assert [each.id for each in listing.chosen()] == [7]
    listing.narrow("")
    assert shown(listing) == [6]


def test_cursor_and_mark_stay_on_an_array_whose_shown_job_ends() -> None:
    listing = folded(*ELEMENTS, job(9, JobState.RUNNING))
    listing.follow(6)
    listing.toggle(6)
    listing.put([job(6, JobState.COMPLETED, 1, array=5)])
    assert (shown(listing), listing.cursor, listing.marks) == ([8, 9], 8, {8})
    assert progress(listing, 8) == "3 of 4, 1 failed"
    listing.put([job(8, JobState.COMPLETED, 3, array=5)])
    assert progress(listing, listing.folding.shown_for(8)) == "4 of 4, 1 failed"


def test_a_group_is_opened_and_folded() -> None:
    listing = folded(*ELEMENTS, job(9, JobState.RUNNING), job(10, JobState.RUNNING, workload=2))
    listing.follow(6)
    assert listing.fold_one()
    assert shown(listing) == [5, 6, 7, 8, 9, 10]
    listing.follow(7)
    assert [each.id for each in listing.chosen()] == [7]
    listing.put([job(8, JobState.COMPLETED, 3, array=5)])
    assert shown(listing) == [5, 6, 7, 8, 9, 10], "an opened group stays open"
    assert listing.fold_one()
    assert (shown(listing), listing.cursor) == ([6, 9, 10], 6)
    listing.follow(9)
    assert not listing.fold_one()
    listing.fold_all()
    assert shown(listing) == [5, 6, 7, 8, 9, 10]


def test_a_retried_job_of_a_workload_counts_once() -> None:
    listing = folded(
        job(1, JobState.COMPLETED, workload=3, task="prepare"),
        job(2, JobState.FAILED, 0, array=2, workload=3, task="train"),
    )
    assert progress(listing, 1) == "2 of 2, 1 failed"
    listing.put([job(4, JobState.COMPLETED, 0, array=4, workload=3, task="train")])
    assert (shown(listing), progress(listing, 1)) == ([1], "2 of 2")
    listing.put([job(2, JobState.FAILED, 0, array=2, workload=3, task="train")])
    assert progress(listing, 1) == "2 of 2"


def test_old_rows_leave_and_still_count() -> None:
    listing = folded(*ELEMENTS)
    listing.drop([5, 6])
    assert (shown(listing), progress(listing, 8)) == ([8], "2 of 4, 1 failed")
    listing.drop([7, 8])
    assert shown(listing) == []


def test_the_expected_end_of_the_controller_is_shown() -> None:
    listing = folded(*ELEMENTS)
    listing.folding.told([replace(GROUP, label="5", ends_at=4_102_444_800.0)])
    assert progress(listing, 6).startswith("2 of 4, 1 failed, ends ≈ ")


CHANGES = st.builds(
    lambda number, state, group: job(
        number,
        state,
        number,
        array=group if group in (1, 2) else None,
        workload=group if group in (3, 4) else None,
    ),
    st.integers(1, 12),
    st.sampled_from(JobState),
    st.integers(0, 4),
)
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(CHANGES, max_size=6)),
    st.tuples(st.just("drop"), st.lists(st.integers(1, 12), max_size=3)),
    st.tuples(st.just("filter"), st.sampled_from(("", "state:run", "!state:failed"))),
    st.tuples(st.just("open"), st.integers(0, 5)),
    st.tuples(st.just("all"), st.none()),
)


@settings(max_examples=examples(225))
@given(st.lists(STEPS, max_size=25))
def test_folding_row_by_row_equals_folding_everything(steps: list[tuple[str, object]]) -> None:
    listing, of = job_listing(), dict[int, tuple[int | None, int | None]]()
    for step, about in steps:
        if step == "put":
            # A job never changes its array or workload.
            rows = [
                replace(
                    row, array=of.setdefault(row.id, (row.array, row.workload))[0], workload=of[row.id][1]
                )
                for row in about  # type: ignore[attr-defined]
            ]
            listing.put(rows)
        elif step == "drop":
            listing.drop(about)  # type: ignore[arg-type]
        elif step == "filter":
            listing.narrow(str(about))
        elif step == "open" and len(listing):
            listing.move_to(int(str(about)))
            listing.fold_one()
        elif step == "all":
            listing.fold_all()
        groups: dict[object, list[JobView]] = {}
        for row in filter(listing.filter, listing.rows.values()):
            opened = not listing.folding.on or listing.folding.row(row.id) is None
            groups.setdefault((of[row.id], row.id if opened else 0), []).append(row)
        assert len(listing) == len(groups), "one row for each folded group, and one for each other job"
        for row in listing:
            assert row.id not in listing.hidden


async def test_a_key_folds_the_list_and_unfolds_it() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        of_arrays = [each.array for each in jobs() if each.array is not None]
        folded = len(jobs()) - len(of_arrays) + len(set(of_arrays))
        assert len(of_arrays) > len(set(of_arrays))
        assert len(screen.model.jobs) == folded
        assert f"{of_arrays[0]}_*" in screen.text()
        await press(pilot, "minus")
        assert len(screen.model.jobs) == len(jobs())
        assert f"{of_arrays[0]}_*" not in screen.text()
        await press(pilot, "minus")
        assert len(screen.model.jobs) == folded
