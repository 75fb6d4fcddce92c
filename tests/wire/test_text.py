"""Text for terminals has no control characters, and amounts are readable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.text import counted, decimal, duration, memory, percent, printable


@given(st.text(st.characters(categories=["C", "Z", "L", "M"]), max_size=300))
def test_control_characters_are_removed(text: str) -> None:
    clean = printable(text)
    assert len(clean) <= 200
    assert not [mark for mark in clean if unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp")]


@pytest.mark.parametrize(
    "mark", ["\x1b", "\n", "\r", "\t", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\x7f"]
)
def test_hostile_characters_become_visible(mark: str) -> None:
    assert printable(f"a{mark}b") == "a\ufffdb"


def test_long_text_is_cut_with_a_mark() -> None:
    assert printable("x" * 300, 10) == "xxxxxxxxx…"
    assert printable("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (-5, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (185, "3m05s"),
        (7_800, "2h10m"),
        (352_800, "4d02h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("mib", "text"), [(512, "512M"), (1536, "1.5G"), (16384, "16G"), (2 << 20, "2T")])
def test_memory(mib: int, text: str) -> None:
    assert memory(mib) == text


def test_counts_have_singular_and_plural() -> None:
    assert [counted(number, "job") for number in (0, 1, 2, 1_234)] == [
        "0 jobs",
        "1 job",
        "2 jobs",
        "1,234 jobs",
    ]
    assert [counted(number, "CPU") for number in (1.0, 0.5)] == ["1 CPU", "0.5 CPUs"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[
            (1_234.56, "1,234.6"),
            (1.25, "1.2"),
            (0.254, "0.25"),
            (0.04, "0.04"),
            (0.0004, "<0.001"),
            (0, "0.0"),
        ],
        *[(-1_234.56, "-1,234.6"), (-0.254, "-0.25"), (-0.0004, ">-0.001"), (-0.0, "0.0")],
    ],
)
def test_small_numbers_are_not_rounded_to_zero(value: float, text: str) -> None:
    assert decimal(value) == text


def test_small_percentages_are_not_rounded_to_zero() -> None:
    assert [percent(each) for each in (120, 80.4, 1, 0.42, 0)] == ["120 %", "80 %", "1 %", "0.42 %", "0 %"]
    assert [percent(each) for each in (-80.4, -0.42, -0.0)] == ["-80 %", "-0.42 %", "0 %"]
