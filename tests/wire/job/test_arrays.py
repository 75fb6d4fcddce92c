"""The indices of an array are parsed, and wrong ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.job.arrays import MAX_ARRAY, array_concurrency_limit, array_indices


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("3", [3]),
        ("0-3", [0, 1, 2, 3]),
        ("3,1,1", [1, 3]),
        ("0-10:5", [0, 5, 10]),
        ("0-2, 2-4", [0, 1, 2, 3, 4]),
        ("007", [7]),
        ("0-2%2", [0, 1, 2]),
    ],
)
def test_array_indices_are_sorted_and_unique(text: str, indices: list[int]) -> None:
    assert array_indices(text) == indices


@given(st.lists(st.integers(0, 10**9 - 1), min_size=1, max_size=50))
def test_any_list_of_indices_is_parsed_back(numbers: list[int]) -> None:
    assert array_indices(",".join(map(str, numbers))) == sorted(set(numbers))


@given(st.text(alphabet="0123456789-,: %", max_size=40))
def test_any_text_gives_few_indices_or_an_error(text: str) -> None:
    try:
        found = array_indices(text)
    except ValueError:
        return
    assert 1 <= len(found) <= MAX_ARRAY


@pytest.mark.parametrize(("text", "limit"), [("0-99%4", 4), ("0-99% 4", 4), ("0-99", None)])
def test_limit_of_running_elements_is_the_number_after_the_percent_sign(text: str, limit: int | None) -> None:
    assert array_concurrency_limit(text) == limit
