"""The view Plan: times, rows, bars, the cursor, and refined answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tui.recorded import NOW, RecordedClient, everything
from tests.tui.screens import Screen, press, settled, until
from tui.actions import BY_NAME, PLAN, keys_of
from tui.data.request_workers import RequestWorkers
from tui.plan.bars import draw_row, user_style
from tui.plan.chart_rows import ChartRow, chart_rows
from tui.plan.timeline import SPANS_S, Timeline
from tui.views.plan import WITHIN_S
from wire.api.forecasts import (
    CERTAIN,
    DRAIN,
    LIKELY,
    LIMIT,
    RESERVATION,
    Plan,
    PlanBlock,
    PlanEntry,
    PlanPoint,
)
from wire.api.problem import Problem
from wire.http.client import Refused

HOUR = 3_600.0
MIDNIGHT = NOW - NOW % 86_400


def entry(job: int, begin: float, end: float | None, certainty: str = LIMIT, **changes: Any) -> PlanEntry:
    """A job from hour `begin` to hour `end` after NOW."""
    base = PlanEntry(
        job,
        str(job),
        f"job{job}",
        "alice",
        "llm",
        "default",
        8.0,
        ("node-1",),
        NOW + begin * HOUR,
        None if end is None else NOW + end * HOUR,
        certainty,
    )
    return replace(base, **changes)


def plan(*entries: PlanEntry, **changes: Any) -> Plan:
    free = (PlanPoint(NOW, 2.0), PlanPoint(NOW + 2 * HOUR, 16.0))
    return replace(Plan(NOW, 86_400.0, entries, (), free, 32, 5, 0), **changes)


def text(row: ChartRow, timeline: Timeline) -> str:
    return "".join(text for text, _ in draw_row(row, timeline, NOW, lambda entry: user_style(entry.user)))


# -- times -----------------------------------------------------------------------------------------


def test_times_above_the_chart_are_at_their_columns() -> None:
    timeline = Timeline(MIDNIGHT + 8 * HOUR, 4 * HOUR, 80)
    line = timeline.line(MIDNIGHT)
    assert len(line) == 80
    for hour in (9, 10, 11):
        assert line[timeline.column(MIDNIGHT + hour * HOUR) :].startswith(f"{hour:02}:00")
    assert timeline.line(MIDNIGHT + 9 * HOUR)[20:].startswith("now 09:00")


def test_visible_bar_has_at_least_one_cell() -> None:
    timeline = Timeline(NOW, 24 * HOUR, 48)
    assert list(timeline.cells(NOW + HOUR, NOW + HOUR + 1)) == [2]
    assert list(timeline.cells(NOW - HOUR, NOW + HOUR)) == [0, 1]
    assert not timeline.cells(NOW - 2 * HOUR, NOW - HOUR)
    assert not timeline.cells(NOW + 25 * HOUR, NOW + 26 * HOUR)
    assert list(timeline.cells(NOW + 23 * HOUR, float("inf"))) == [46, 47]


def test_zoom_stops_at_half_an_hour_and_at_a_week() -> None:
    timeline = Timeline(NOW, SPANS_S[0], 48)
    assert timeline.zoomed(-1).span_s == SPANS_S[0]
    assert timeline.zoomed(1).span_s == SPANS_S[1]
    assert Timeline(NOW, SPANS_S[-1], 48).zoomed(1).span_s == SPANS_S[-1]


# -- rows ------------------------------------------------------------------------------------------


def test_rows_by_node_have_gangs_on_each_node_and_nodes_without_jobs() -> None:
    gang = entry(1, 0, 2, nodes=("node-1", "node-2"))
    rows = chart_rows(plan(gang), "node", {"node-1": "8/8", "node-2": "8/8", "node-3": "0/8"}, apart=False)
    assert [(row.name, row.detail, [each.job for each in row.bars]) for row in rows] == [
        ("node-1", "8/8", [1]),
        ("node-2", "8/8", [1]),
        ("node-3", "0/8", []),
    ]


def test_overlapping_jobs_are_drawn_apart_and_others_share_a_row() -> None:
    several = plan(entry(1, 0, 2), entry(2, 1, 3), entry(3, 2, 4), entry(4, 3, None))
    rows = chart_rows(several, "node", {"node-1": "8/8"}, apart=True)
    assert [[each.job for each in row.bars] for row in rows] == [[1, 3], [2, 4]]
    assert [row.name for row in rows] == ["node-1", ""]
    assert {row.node for row in rows} == {"node-1"}


def test_rows_by_user_have_the_user_with_most_gpus_first() -> None:
    several = plan(entry(1, 0, 2, CERTAIN, user="bob", gpus=2.0), entry(2, 1, 3, user="alice", gpus=16.0))
    rows = chart_rows(several, "user", {}, apart=False)
    assert [(row.name, row.detail) for row in rows] == [("alice", "0"), ("bob", "2")]


# -- bars ------------------------------------------------------------------------------------------


def test_bars_of_running_likely_and_latest_starts_differ_without_colours() -> None:
    timeline = Timeline(NOW, 12 * HOUR, 48)
    running = entry(1, -1, 6, CERTAIN, likely_end_at=NOW + 4 * HOUR)
    assert text(ChartRow("n", bars=[running]), timeline) == "█ 1 job1 " + "█" * 7 + "┄" * 8 + " " * 24
    assert text(ChartRow("n", bars=[entry(2, 6, 8, LIKELY)]), timeline)[24:32] == "▒ 2 ▒▒▒▒"
    assert text(ChartRow("n", bars=[entry(3, 6, 8, LIMIT)]), timeline)[24:32] == "░ 3 ░░░░"


def test_job_without_a_time_limit_reaches_the_right_edge() -> None:
    timeline = Timeline(NOW, 12 * HOUR, 48)
    assert text(ChartRow("n", bars=[entry(1, 6, None, CERTAIN)]), timeline).endswith("█" * 10)


def test_reservations_and_drains_are_behind_the_jobs() -> None:
    timeline = Timeline(NOW, 12 * HOUR, 48)
    blocks = (
        PlanBlock(RESERVATION, "maint", ("node-1",), NOW + HOUR, NOW + 4 * HOUR),
        PlanBlock(DRAIN, "node-1", ("node-1",), NOW + 8 * HOUR, None),
    )
    shown = text(ChartRow("n", bars=[entry(1, 3, 5, CERTAIN)], blocks=blocks), timeline)
    assert shown[4:12] == " maint R"
    assert shown[12:20] == "█ 1 ████"
    assert shown.endswith("╳" * 4)
    covered = text(ChartRow("n", bars=[entry(1, 7, 9, CERTAIN)], blocks=blocks), timeline)
    assert covered[36:46] == " node-1 ╳╳", "the name is whole where no job covers it"


def test_wide_job_covers_a_narrow_one_and_moved_bars_move() -> None:
    timeline = Timeline(NOW, 12 * HOUR, 48)
    row = ChartRow("n", bars=[entry(1, 2, 4, gpus=8.0, user="bob"), entry(2, 2, 4, gpus=1.0)])
    pieces = draw_row(row, timeline, NOW, lambda each: each.user)
    assert ("░ 1 ░░░░", "bob") in pieces
    moved = draw_row(row, timeline, NOW, lambda each: each.user, lambda each: HOUR if each.job == 1 else 0.0)
    assert "".join(text for text, _ in moved)[8:12] == "┆ 2 "
    assert "".join(text for text, _ in moved)[12:20] == "░ 1 ░░░░"


def test_hostile_name_takes_one_cell_for_each_character() -> None:
    timeline = Timeline(NOW, 12 * HOUR, 48)
    row = ChartRow("n", bars=[entry(1, 0, 11, name="\x1b[31m任务\u202e")])
    assert sum(len(text) for text, _ in draw_row(row, timeline, NOW, lambda each: each.user)) == 48
    assert "\x1b" not in text(row, timeline)


# -- the view --------------------------------------------------------------------------------------


def screen() -> Screen:
    return Screen(everything(), first_view="plan")


async def test_cursor_moves_over_rows_and_jobs_and_opens_a_job() -> None:
    app = screen()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        assert "runs since" in app.text()
        (first,) = app.view.jobs()
        await press(pilot, "right")
        (second,) = app.view.jobs()
        assert first.id != second.id
        await press(pilot, "left")
        assert app.view.jobs() == [first]
        await press(pilot, "enter")
        await until(pilot, lambda: app.view.NAME == "job")
        assert app.view.jobs()[0].id == first.id


async def test_plan_is_filtered_grouped_and_zoomed() -> None:
    app = screen()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        assert "12h00m by node" in app.text()
        await press(pilot, "n", "plus")
        assert "6h00m by job" in app.text()
        await press(pilot, "slash", *"id:^10$", "enter")
        assert [row.name for row in app.view.pane.rows] == ["10"]
        await press(pilot, "escape")
        assert len(app.view.pane.rows) == 14


async def test_chart_moves_by_a_quarter_and_returns_to_the_present() -> None:
    app = screen()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        assert "now " in app.text()
        begin = app.view.pane.timeline.begin
        await press(pilot, "full_stop")
        assert app.view.pane.timeline.begin == begin + 3 * HOUR
        assert "now " not in app.text().splitlines()[2]
        await press(pilot, "f")
        assert app.view.pane.timeline.begin == begin


async def test_incomplete_plan_is_asked_again_with_more_time(monkeypatch: Any) -> None:
    asked: list[float | None] = []

    def answer(_client: object, horizon_s: float, within_s: float | None = None) -> Plan:
        asked.append(within_s)
        complete = len(asked) >= 3
        return plan(entry(len(asked), 1, 3), complete=complete, covers_until=None if complete else NOW + HOUR)

    monkeypatch.setattr(RecordedClient, "plan", answer)
    app = screen()
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: len(asked) == 3 and "refining" not in app.text())
        assert asked == sorted(asked, key=float)
        assert app.view.pane.rows[0].bars[0].job == 3


def test_key_belongs_to_the_action_of_fewer_views() -> None:
    assert "left" not in keys_of(BY_NAME["back"], PLAN)
    assert "left" in keys_of(BY_NAME["back"], "queue")
    assert "left" in keys_of(BY_NAME["earlier"], PLAN)


# -- the effect of a change ----------------------------------------------------------------------------


async def test_effect_of_a_cancel_is_drawn_until_the_dialog_is_left() -> None:
    app = screen()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        assert "┆" not in app.text()
        await press(pilot, "C")
        await until(pilot, lambda: "1 starts later" in app.text())
        pane = app.view.pane
        gang = next(each for row in pane.rows for each in row.bars if each.job == 10)
        assert pane.style_of(gang) == "warn"
        assert pane.shifted(gang) == 3_600.0
        assert "┆" in app.text()
        sooner = next(each for row in pane.rows for each in row.bars if each.job == 12)
        assert (pane.style_of(sooner), pane.shifted(sooner), sooner.nodes) == ("good", -7_200.0, ("node-3",))
        await press(pilot, "escape")
        assert "┆" not in app.text()
        assert app.ordered == []


async def test_new_job_is_drawn_where_it_would_start() -> None:
    app = screen()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        await press(pilot, "w")
        await until(pilot, lambda: "What if…" in app.text())
        await press(pilot, "enter")
        await until(pilot, lambda: "New job" in app.text())
        await press(pilot, *"true")
        await until(pilot, lambda: any(each.label == "41" for row in app.view.pane.rows for each in row.bars))
        (row,) = [row for row in app.view.pane.rows if any(each.label == "41" for each in row.bars)]
        assert row.name == "node-3"


async def test_more_nodes_change_nothing() -> None:
    app = screen()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        await press(pilot, "w", "G", "k", "k", "k", "enter")
        await until(pilot, lambda: "More nodes" in app.text())
        assert "corral what-if nodes --like node-1 --add 1" in app.text()
        await until(pilot, lambda: "starts later" in app.text())
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "More nodes" not in app.text())
        assert app.ordered == []


async def test_read_only_screen_tries_no_change() -> None:
    app = Screen(everything(), first_view="plan", read_only=True)
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "w", "enter")
        assert "this screen is read-only" in app.text()


async def test_tab_compares_the_plan_before_and_after_a_change() -> None:
    app = screen()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        await press(pilot, "C")
        await until(pilot, lambda: "after the change" in app.text())
        assert "worst   10" in app.text()
        assert "best    12" in app.text()
        await press(pilot, "tab")
        assert "before the change" in app.text()
        pane = app.view.pane
        gang = next(each for row in pane.rows for each in row.bars if each.job == 10)
        assert (pane.style_of(gang), pane.shifted(gang)) == (None, 0.0)
        assert "┆" not in app.text()
        await press(pilot, "tab")
        assert "after the change" in app.text()
        assert "┆" in app.text()
        assert app.screen.query_one("#back").has_focus, "Tab did not move the focus"
        await press(pilot, "escape")
        assert "the change" not in app.text()


@pytest.mark.parametrize(
    ("entry", "chosen", "title", "command"),
    [
        ("change a share", "lab/", "Share of speech", "corral shares set speech 2"),
        ("change a quota", "user", "Quota of user alice", "corral quota set user alice gpus=2"),
    ],
)
async def test_shares_and_quotas_are_tried_on_the_plan(
    entry: str, chosen: str, title: str, command: str
) -> None:
    app = screen()
    async with app.run_test(size=(140, 40)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: "5 starts known" in app.text())
        await press(pilot, "w")
        await until(pilot, lambda: entry in app.text())
        await press(pilot, "G", *["k"] * (entry == "change a share"), "enter")
        name = title.rpartition(" ")[2]
        await until(pilot, lambda: "Change a" in app.text() and name in app.text())
        await press(pilot, *name, "enter")
        await until(pilot, lambda: title in app.text())
        await press(pilot, *["backspace"] * 4, "2")
        assert command in app.text()
        await until(pilot, lambda: "after the change" in app.text())
        await press(pilot, "tab")
        assert "before the change" in app.text()


async def test_a_plan_refused_for_want_of_time_is_requested_again_with_more_time() -> None:
    limits: list[float | None] = []

    class Slow(RecordedClient):
        def plan(self, horizon_s: float, within_s: float | None = None) -> Plan:
            limits.append(within_s)
            if len(limits) < 3:
                raise Refused(503, Problem("busy", "there was not enough time to compute a plan"))
            return super().plan(horizon_s, within_s)

    screen = Screen(first_view=PLAN)
    screen.connect = lambda: Slow([])
    screen.requests = RequestWorkers(screen.connect, screen.deliver)
    async with screen.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "8 GPUs" in screen.text() and "free GPUs" in screen.text())
        assert limits[:3] == list(WITHIN_S)
        assert "not enough time" not in screen.text()
