"""The list kept up to date row by row is the list one gets by sorting everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tui.recorded import job
from tui.data.lists.cluster_lists import job_listing
from tui.data.lists.filter import FilterError
from tui.data.lists.listing import Listing
from wire.api.jobs import JobView
from wire.names import JobState

IDS = st.integers(1, 25)
ROWS = st.builds(
    lambda number, state, gpus, priority, name: replace(
        job(number, state), gpus=float(gpus), priority=priority, name=name
    ),
    IDS,
    st.sampled_from(JobState),
    st.integers(0, 4),
    st.sampled_from((0, 50, 75)),
    st.sampled_from(("a", "B", "c", "")),
)
STEPS = st.one_of(
    st.tuples(st.just("put"), st.lists(ROWS, max_size=8)),
    st.tuples(st.just("replace"), st.lists(ROWS, max_size=8)),
    st.tuples(st.just("drop"), st.lists(IDS, max_size=4)),
    st.tuples(st.just("sort"), st.sampled_from(sorted(job_listing().sorts))),
    st.tuples(st.just("filter"), st.sampled_from(("", "gpus:>=2", "!state:run", "a", "user:bob !c"))),
    st.tuples(st.just("move"), st.integers(-3, 30)),
    st.tuples(st.just("mark"), IDS),
)


def take(listing: Listing[int, JobView], step: tuple[str, object]) -> None:
    verb, about = step
    deeds = {
        "put": listing.put,
        "replace": listing.replace,
        "drop": listing.drop,
        "sort": listing.sort_by,
        "filter": listing.narrow,
        "move": listing.move_to,
        "mark": listing.toggle,
    }
    deeds[verb](about)  # type: ignore[operator]


@settings(max_examples=examples(225))
@given(st.lists(STEPS, max_size=30))
def test_list_order_equals_sorting_everything(steps: list[tuple[str, object]]) -> None:
    listing, truth = job_listing(), dict[int, JobView]()
    for step in steps:
        verb, about = step
        if verb == "replace":
            truth.clear()
        if verb in ("put", "replace"):
            truth.update((row.id, row) for row in about)  # type: ignore[attr-defined]
        if verb == "drop":
            for key in about:  # type: ignore[attr-defined]
                truth.pop(key, None)
        cursor_before = listing.cursor
        take(listing, step)

        value = listing.sorts[listing.sort]
        wanted = sorted(
            (row for row in truth.values() if listing.filter(row)), key=lambda row: (value(row), row.id)
        )
        assert list(listing) == (wanted[::-1] if listing.reverse else wanted)
        assert [listing.index_of(row.id) for row in listing] == list(range(len(listing)))
        assert (listing.cursor is None) == (len(listing) == 0)
        if listing.cursor is not None:
            assert listing.key_at(listing.index) == listing.cursor
        if verb in ("put", "drop") and listing._home is not None and cursor_before == listing._home:
            assert listing.cursor == cursor_before or listing.index_of(cursor_before) is None


def filled(*numbers: int) -> Listing[int, JobView]:
    listing = job_listing()
    listing.arrange("id", reverse=False)
    listing.put(job(number) for number in numbers)
    return listing


def test_cursor_stays_at_the_top_until_it_is_moved() -> None:
    listing = filled(5, 6)
    listing.put([job(1)])
    assert listing.cursor == 1


def test_cursor_follows_its_job_and_not_its_row() -> None:
    listing = filled(5, 6, 7)
    listing.move_to(1)
    listing.put([job(1), job(2)])
    assert (listing.cursor, listing.index) == (6, 3)


def test_removed_job_leaves_the_cursor_on_its_neighbour() -> None:
    listing = filled(5, 6, 7)
    listing.move_to(1)
    listing.drop([6])
    assert listing.cursor == 7
    listing.drop([7])
    assert listing.cursor == 5


def test_cursor_returns_to_its_job_when_the_filter_is_cleared() -> None:
    listing = filled(1, 2, 3, 4)
    listing.move_to(2)
    listing.narrow("id:^1$")
    assert listing.cursor == 1
    listing.narrow("")
    assert listing.cursor == 3


def test_marks_follow_their_jobs_and_survive_a_filter() -> None:
    listing = filled(1, 2, 3)
    listing.toggle(2)
    listing.narrow("id:^1$")
    listing.put([job(4)])
    assert [row.id for row in listing.chosen()] == [2]
    listing.drop([2])
    assert [row.id for row in listing.chosen()] == [1]


def test_a_range_is_marked_in_either_direction() -> None:
    listing = filled(1, 2, 3, 4, 5)
    listing.mark_between(4, 2)
    assert listing.marks == {2, 3, 4}


def test_marking_shown_rows_twice_clears_their_marks() -> None:
    listing = filled(1, 2, 3)
    listing.toggle(3)
    listing.narrow("id:[12]")
    listing.mark_shown()
    assert listing.marks == {1, 2, 3}
    listing.mark_shown()
    assert listing.marks == {3}


def test_invalid_filter_changes_nothing() -> None:
    listing = filled(1, 2, 3)
    listing.narrow("id:1")
    with pytest.raises(FilterError, match="not a valid regex yet"):
        listing.narrow("(")
    assert [row.id for row in listing] == [1]


def test_a_job_that_ends_and_leaves_the_filter_keeps_the_cursor_at_its_place() -> None:
    listing = job_listing()
    listing.put(job(number) for number in range(10, 30))
    listing.narrow("state:queued")
    listing.move_to(1)
    gone, after = listing.key_at(1), listing.key_at(2)
    listing.put([job(gone, JobState.CANCELLED)])
    assert (listing.cursor, listing.index) == (after, 1)
    listing.sort_by("id")
    listing.narrow("")
    assert listing.cursor == gone
