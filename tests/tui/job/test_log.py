"""The log of a job: its beginning, other parts, and the search in the whole log."""

from __future__ import annotations

import pytest

from tests.tui.recorded import RecordedClient
from tests.tui.screens import Screen, press, settled, until
from tui.data import log_page, log_tail
from tui.data.log_page import fetch_page
from tui.views.job_details import JobDetailsView
from tui.widgets.log_pane import _emphasised
from wire.api.jobs import LogMatch

LINES = [f"step {number:05}" for number in range(20_000)]
LINES[7] = "CUDA error: first"
LINES[9_000] = "CUDA error: second"
LINES[19_990] = "CUDA error: third"
DATA = "\n".join(LINES).encode() + b"\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the log and each page are much smaller than the log."""
    monkeypatch.setattr(log_tail, "TAIL_BYTES", 2_000)
    monkeypatch.setattr(log_page, "PAGE_BYTES", 4_000)
    monkeypatch.setattr(log_page, "BEFORE_BYTES", 1_000)


async def opened(screen: Screen, pilot: object) -> JobDetailsView:
    await settled(pilot)
    screen.open_job(1)
    await until(pilot, lambda: isinstance(screen.view, JobDetailsView) and "step 19999" in screen.text())
    view = screen.view
    assert isinstance(view, JobDetailsView)
    return view


def client() -> RecordedClient:
    return RecordedClient([], DATA)


@pytest.mark.parametrize("place", [0, 1, 999, 1_000, 5_555, 100_000, len(DATA) - 1, len(DATA)])
def test_page_has_whole_lines_with_their_bytes(place: int) -> None:
    page = fetch_page(client, 1, "stdout", place)
    assert page.lines
    for line, offset in zip(page.lines, page.offsets, strict=True):
        assert DATA[offset : offset + len(line) + 1] == line.encode() + b"\n"
    assert page.begin <= place <= page.end <= len(DATA)
    assert page.over == (page.end == len(DATA))
    assert page.offsets[page.line_at(place)] <= place


def test_line_that_is_longer_than_a_page_is_shown() -> None:
    long = b"first\n" + b"x" * 50_000 + b"\nlast\n"
    page = fetch_page(lambda: RecordedClient([], long), 1, "stdout", 20_000)
    assert len(page.lines) == 1
    assert page.begin == 19_000


def test_search_goes_on_where_the_agent_has_stopped_and_at_the_other_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, bool]] = []

    def search_log(_: object, __: int, text: str, *, stream: str, offset: int, back: bool) -> LogMatch:
        asked.append((offset, back))
        begin = max(0, len(DATA) if offset < 0 else offset)
        limits = (begin - 100_000, begin) if back else (begin, begin + 100_000)
        low, high = max(0, limits[0]), min(len(DATA), limits[1])
        find = DATA.rfind if back else DATA.find
        found = find(text.encode(), low, high)
        return LogMatch(None if found < 0 else found, low if back else high, len(DATA))

    monkeypatch.setattr(RecordedClient, "search_log", search_log)
    found = log_page.search(client, 1, "stdout", "first", -1, back=True)
    assert found.place == DATA.index(b"first")
    assert found.page is not None
    assert found.page.lines[found.page.line_at(found.place)] == LINES[7]
    assert asked == [(-1, True), (len(DATA) - 100_000, True), (len(DATA) - 200_000, True)]
    found = log_page.search(client, 1, "stdout", "first", 150_000, back=False)
    assert (found.place, found.wrapped) == (DATA.index(b"first"), True)
    assert log_page.search(client, 1, "stdout", "none of it", 150_000, back=False).page is None


async def test_slash_finds_the_last_match_and_the_keys_go_on_in_the_whole_log() -> None:
    screen = Screen(output=DATA)
    async with screen.run_test(size=(100, 24)) as pilot:
        view = await opened(screen, pilot)

        async def reaches(line: str, *keys: str) -> None:
            await press(pilot, *keys)
            await until(pilot, lambda: line in screen.text())
            page, pane = view.output.shown_page, view.output
            assert page is not None
            assert page.lines[pane._marked] == line

        await reaches(LINES[19_990], "slash", *"error", "enter")
        await reaches(LINES[9_000], "N")
        await reaches(LINES[7], "N")
        await reaches(LINES[19_990], "N")
        await until(pilot, lambda: "the search continued at the end of the log" in screen.text())
        await reaches(LINES[7], "n")
        await reaches(LINES[9_000], "n")
        await press(pilot, "G")
        await until(pilot, lambda: "step 19999" in screen.text() and view.output.following)
        await press(pilot, "slash", *"absent", "enter")
        await until(pilot, lambda: "the log does not contain absent" in screen.text())


async def test_g_fetches_the_beginning_and_scrolling_fetches_the_next_part() -> None:
    screen = Screen(output=DATA)
    async with screen.run_test(size=(100, 24)) as pilot:
        view = await opened(screen, pilot)
        await press(pilot, "g")
        await until(pilot, lambda: LINES[0] in screen.text())
        assert "from the beginning" in screen.text()
        first = view.output.shown_page
        assert first is not None
        assert len(first.lines) < 500
        view.output.jump(view.output.total)
        await press(pilot, "j")
        await until(pilot, lambda: view.output.shown_page is not first)
        second = view.output.shown_page
        assert second is not None
        assert second.begin < first.end < second.end
        await until(
            pilot, lambda: first.lines[-1] in screen.text() or LINES[len(first.lines)] in screen.text()
        )
        await press(pilot, "escape")
        await until(pilot, lambda: "step 19999" in screen.text())
        assert screen.view is view, "escape has left the page, not the job"


async def test_beginning_of_a_short_log_needs_no_request() -> None:
    screen = Screen(output=b"\n".join(b"line %d" % number for number in range(100)) + b"\n")
    async with screen.run_test(size=(100, 24)) as pilot:
        await settled(pilot)
        screen.open_job(1)
        await until(pilot, lambda: "line 99" in screen.text())
        await press(pilot, "g")
        await until(pilot, lambda: "line 0 " in screen.text())
        assert "from the beginning" not in screen.text()


async def test_ampersand_filters_the_loaded_lines() -> None:
    screen = Screen(output=DATA)
    async with screen.run_test(size=(100, 24)) as pilot:
        view = await opened(screen, pilot)
        await press(pilot, "ampersand", *"error", "enter")
        await until(pilot, lambda: "step" not in screen.text() and LINES[19_990] in screen.text())
        assert view.output.shown_page is None


def test_matches_are_emphasised_as_the_agent_finds_them() -> None:
    line = "Error and error in ÄÖ error"
    assert [text for text, style in _emphasised(line, "text", "error") if style == "mark"] == [
        "Error",
        "error",
        "error",
    ]
    assert [text for text, style in _emphasised(line, "text", "Error") if style == "mark"] == ["Error"]
    assert "".join(text for text, _ in _emphasised(line, "text", "error")) == line
