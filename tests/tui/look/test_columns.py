"""Columns at every width, and lines that are exactly as wide as the screen."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from tui.data.lists.cluster_lists import job_listing
from tui.look import cells, theme
from tui.look.changed_cells import ChangedCells
from tui.look.columns import GUTTER, fit_columns
from tui.look.styled_lines import Paint, bar, both_ends, fit, length, span
from tui.views.queue import QueueView
from tui.widgets.scrolling_pane import _changed_part

COLUMNS = QueueView(job_listing()).columns()
PAINT = Paint(theme.styles(theme.DUSK))
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Mn", "Me", "Cf", "Zl", "Zp"]), max_size=30)


@given(st.integers(1, 400), st.integers(1, 2))
def test_columns_never_exceed_the_width(width: int, gap: int) -> None:
    fitted = fit_columns(COLUMNS, width, gap)
    assert GUTTER + sum(cells for _, cells in fitted) + gap * max(0, len(fitted) - 1) <= max(width, GUTTER)
    assert all(cells > 0 for _, cells in fitted)
    order = [column.name for column in COLUMNS]
    assert [column.name for column, _ in fitted] == sorted((c.name for c, _ in fitted), key=order.index)


@pytest.mark.parametrize(
    ("width", "gone", "there"),
    [
        (40, "why", "name"),
        (60, "priority", "time"),
        (80, "project", "why"),
        (120, "detail", "project"),
        (200, "", "detail"),
    ],
)
def test_the_important_columns_stay_longest(width: int, gone: str, there: str) -> None:
    names = [column.name for column, _ in fit_columns(COLUMNS, width, 1 if width < 100 else 2)]
    assert there in names
    assert gone not in names


@given(TEXTS, st.integers(0, 40), st.booleans())
def test_a_fitted_text_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert span(fit(text, width, right)) == width


@given(st.lists(st.tuples(TEXTS, st.sampled_from(("text", "muted", "running")))), st.integers(0, 60))
def test_a_painted_line_has_exactly_its_width(pieces: list[tuple[str, str]], width: int) -> None:
    strip = PAINT.strip(pieces, width, "cursor")
    assert sum(segment.cell_length for segment in strip) == strip.cell_length == width


@given(st.lists(st.tuples(TEXTS, st.just("text"))), st.integers(20, 80))
def test_right_end_of_a_line_is_never_cut(left: list[tuple[str, str]], width: int) -> None:
    pieces = both_ends(left, [("● live", "good")], width)
    assert length(pieces) == width
    assert pieces[-1] == ("● live", "good")


@given(st.floats(-1, 2), st.integers(1, 40))
def test_bar_length_matches_its_share(share: float, width: int) -> None:
    pieces = bar(share, width)
    assert length(pieces) == width
    assert abs(pieces[0][0].count("━") + pieces[0][0].count("╸") / 2 - max(0, min(1, share)) * width) <= 0.5


def test_graph_of_loads_is_amber_for_held_gpus_without_load() -> None:
    assert cells.load_graph((0,) * 8) == [("▁" * 8, "warn")]
    assert cells.load_graph((0,) * 8, held=False) == [("▁" * 8, "faint")]
    assert cells.load_graph((None, 0, 100)) == [("     ", "text"), (" ▁", "faint"), ("█", "heat-15")]
    assert length(cells.load_graph(())) == cells.SPARKS


def test_only_the_changed_part_of_a_line_is_repainted() -> None:
    def line(*parts: str) -> Strip:
        return Strip([Segment(part) for part in parts])

    before = line("name   ", "1m02s", "  high")
    assert _changed_part(before, line("name   ", "1m03s", "  high"), 18) == (7, 5)
    assert _changed_part(before, line("other  ", "1m02s", "  high"), 18) == (0, 7)
    assert _changed_part(before, line("name   ", "1m02s", "  low "), 18) == (12, 6)
    assert _changed_part(None, before, 18) == (0, 18)
    assert _changed_part(line("日本 ", "a"), line("日本 ", "b"), 6) == (5, 1)


def test_update_sends_only_the_cells_between_its_ends() -> None:
    line = Strip([Segment("name   "), Segment("1m02s"), Segment("  high")])
    update = ChangedCells([{0: line, 18: Strip([Segment("peek")])}], [(0, 7, 12), (0, 17, 20)], [[18, 22]])
    sent = update.render_segments(Console(force_terminal=True))
    assert re.split(r"(?:\x1b\[[^HmA-Z]*[Hm])+", sent) == ["", "1m02s", "h", "pe"]
    assert re.findall(r"\x1b\[(\d+;\d+)H", sent) == ["1;8", "1;18", "1;19"]
