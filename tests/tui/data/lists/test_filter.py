"""The filter language behind the slash key."""

from __future__ import annotations

import pytest

from tests.tui.recorded import job, jobs, node
from tui.data.lists.cluster_lists import job_listing, node_listing
from tui.data.lists.filter import FilterError
from wire.names import JobState


def shown(text: str) -> set[int]:
    listing = job_listing()
    listing.replace(jobs())
    listing.narrow(text)
    if listing.folding.on:
        listing.fold_all()
    return {row.id for row in listing}


ALL = {row.id for row in jobs()}


def test_empty_filter_shows_everything() -> None:
    assert shown("") == shown("   ") == ALL


def test_filter_word_is_a_regex_over_all_fields() -> None:
    assert shown("SWEEP") == shown("^24_. sweep") == {24, 25, 26, 27, 28, 29}
    assert shown("llama-(70|405)b") == {row.id for row in jobs() if row.name.startswith("llama-")}


def test_filter_field_can_be_abbreviated() -> None:
    assert shown("user:bob") == shown("us:bob") == {row.id for row in jobs() if row.user == "bob"}
    assert shown("state:fail") == {36, 37}


def test_filter_terms_are_combined_and_negated() -> None:
    assert shown("user:bob !state:queued") == shown("user:bob") - shown("state:queued")
    assert shown("!sweep") == ALL - shown("sweep")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("gpus:8", lambda gpus: gpus == 8),
        ("gpus:=8", lambda gpus: gpus == 8),
        ("gpus:>=4", lambda gpus: gpus >= 4),
        ("gpus:<1", lambda gpus: gpus < 1),
        ("gpus:>0.4", lambda gpus: gpus > 0.4),
        ("gpus:>", lambda gpus: True),
    ],
)
def test_filter_compares_numbers(text: str, good: object) -> None:
    assert shown(text) == {row.id for row in jobs() if good(row.gpus)}  # type: ignore[operator]


def test_ids_compare_as_numbers_too() -> None:
    assert shown("id:>=36") == {row.id for row in jobs() if row.id >= 36 and "_" not in row.label}
    assert shown("id:=24") == {row.id for row in jobs() if row.array == 24}


def test_unknown_filter_field_is_named_with_the_nearest() -> None:
    with pytest.raises(FilterError, match="no field usre; did you mean user"):
        shown("usre:bob")
    with pytest.raises(FilterError, match="the fields are id, name, user"):
        shown("zzz:1")


@pytest.mark.parametrize("text", ["(", "name:[", "*", "user:(?P<"])
def test_incomplete_regex_is_reported(text: str) -> None:
    with pytest.raises(FilterError, match="not a valid regex yet"):
        shown(text)


def test_colon_inside_a_regex_is_no_field() -> None:
    listing = job_listing()
    listing.put([job(1, JobState.QUEUED, name="a:b")])
    listing.narrow("(?:a:b)")
    assert len(listing) == 1


def test_nodes_sort_by_number() -> None:
    listing = node_listing()
    listing.put(node(name, ()) for name in ("node-10", "node-9", "node-1", "Node-2", "7"))
    assert [row.name for row in listing] == ["7", "node-1", "Node-2", "node-9", "node-10"]
