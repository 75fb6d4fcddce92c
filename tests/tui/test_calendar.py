"""The calendar of reservations: what it draws, the window, and the form that it fills in."""

from __future__ import annotations

from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import Input

from tests.tui.recorded import LIVE, NOW, Tenants, job, reservations
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.views.policy.calendar import CalendarView
from tui.widgets.calendar_pane import CalendarPane
from wire.names import JobState


async def opened(screen: Screen, pilot: Pilot[object]) -> CalendarPane:
    await settled(pilot)
    await press(pilot, "6")
    await until(pilot, lambda: "course" in screen.text())
    await press(pilot, "c")
    await until(pilot, lambda: isinstance(screen.view, CalendarView) and screen.view.pane.reservations)
    view = screen.view
    assert isinstance(view, CalendarView)
    return view.pane


def row(screen: Screen, node: str) -> str:
    return next(line for line in screen.text().split("\n") if node in line[:16])


async def test_calendar_shows_reservations_jobs_drains_and_the_time() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        pane = await opened(screen, pilot)
        assert pane.nodes == ["node-1", "node-2", "node-3", "node-4"]
        text = screen.text().split("\n")
        assert "now 10:40" in text[2]
        column = text[2].index("now")
        assert " demo " in row(screen, "node-1")
        assert "R course RR" in row(screen, "node-2")
        assert row(screen, "node-3")[column - 2] in "░▒"
        assert row(screen, "node-4")[column] == "╳"
        assert row(screen, "node-4")[column - 2] == " ", "the drain begins now"


async def test_every_repetition_of_a_reservation_is_drawn() -> None:
    daily = replace(reservations()[1], spec=replace(reservations()[1].spec, every_s=86_400.0))
    screen = Screen(tenants=Tenants(reservations=(daily,)))
    async with screen.run_test(size=(200, 24)) as pilot:
        pane = await opened(screen, pilot)
        assert row(screen, "node-2").count(" course ") == 1
        while pane.span_s < 3 * 86_400:
            await press(pilot, "right_square_bracket")
        assert row(screen, "node-2").count(" course ") == 3


async def test_arrows_choose_a_window_that_fills_the_form() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        pane = await opened(screen, pilot)
        assert pane.starts_at == NOW // 3_600 * 3_600 + 3_600
        await press(pilot, "j", "space", "space", "right", "right", "left", "plus", "plus", "minus")
        assert pane.marks == {"node-2", "node-3"}
        await until(pilot, lambda: "11:30:00 to 14:00:00  2h30m on 2 nodes" in screen.text())
        assert "reserved: course" in screen.text()
        assert "!" in row(screen, "node-3")
        assert "!" not in row(screen, "node-4")
        await press(pilot, "N")
        await until(pilot, lambda: "New reservation" in screen.text())
        typed = {field.name: field.value for field in screen.screen.query(Input)}
        assert (typed["nodes"], typed["start"], typed["for"]) == ("node-2 node-3", "2025-11-18T11:30", "150m")
        assert "--node node-2 --node node-3 --start 2025-11-18T11:30 --for 150m" in screen.text()
        assert not screen.ordered


async def test_window_never_begins_in_the_past_and_the_chart_follows_it() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        pane = await opened(screen, pilot)
        await press(pilot, *["left"] * 10)
        assert NOW - pane.step_s < pane.starts_at <= NOW
        await press(pilot, *["right"] * 40)
        assert pane.begin <= pane.starts_at < pane.starts_at + pane.length_s <= pane.begin + pane.span_s


async def test_status_names_the_jobs_that_may_still_run() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        pane = await opened(screen, pilot)
        held = screen.model.jobs.rows[1].held
        limited = job(1, JobState.RUNNING, held=held, started_at=NOW - 60, time_limit_s=10_800.0)
        screen.recording.put(Changes(LIVE, jobs=(limited,)))
        await until(pilot, lambda: "1 job may still run: 1" in screen.text())
        pane.starts_at = NOW + 10_800
        await press(pilot, "plus")
        await until(pilot, lambda: "on node-1  free" in screen.text())


async def test_click_sets_the_node_and_the_time() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        pane = await opened(screen, pilot)
        column = screen.text().split("\n")[2].index("16:00")
        await pilot.click(offset=(column, 3 + 2))
        assert pane.chosen == ["node-3"]
        await until(pilot, lambda: "16:00:00 to 18:00:00" in screen.text())
