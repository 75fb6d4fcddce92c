"""The view Pulse: graphs, history, alarms, the wall of GPUs, and what its rows open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tui.recorded import LIVE, NOW, everything, gpu, job, node, nodes
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.dialogs.menu import Menu
from tui.look.graphs import area_graph, heat, resample, round_up, sparkline
from tui.pulse.alarms import alarms
from tui.pulse.gpu_wall import FREE, SICK, GpuWall
from tui.pulse.history import MINUTES_KEPT, SECONDS_KEPT, PulseHistory
from tui.pulse.lists import holders
from tui.pulse.panel import Jump
from wire.api.policy.shares import ShareView
from wire.api.service.cluster import PulseSample
from wire.names import GpuHealth, JobState, NodeState, Reason


def sample(at: float, held: float = 20.0, waiting: float = 15.0, load: float | None = 50.0) -> PulseSample:
    return PulseSample(at, 32, held, load, 9_000.0, waiting, 60.0, 30.0, 1.0, 240.0, 3_600.0)


def history() -> tuple[PulseSample, ...]:
    """Three hours of minutes, with a gap of half an hour in which the controller did not run."""
    return tuple(
        sample(NOW - 60.0 * minute, 32 - minute % 40 / 2, 5 + minute % 60)
        for minute in range(180, 0, -1)
        if not 60 <= minute < 90
    )


# -- graphs ----------------------------------------------------------------------------------------


def test_graph_has_four_steps_in_each_line_and_two_values_in_each_character() -> None:
    lines = area_graph([0, 1, 4, 5, 8, 8], [0, 1, 4, 5, 8, 8], 2, 8.0, ("low", "high"))
    assert ["".join(text for text, _ in line) for line in lines] == [" ⢀⣿", "⢀⣿⣿"]


def test_graph_of_two_series_has_the_first_style_up_to_the_lower_one() -> None:
    (top, bottom) = area_graph([8, 8], [4, 4], 2, 8.0, ("works", "held"))
    assert bottom == [("⣿", "works")]
    assert top == [("⣿", "held")]


def test_value_above_zero_has_a_dot() -> None:
    assert area_graph([0.001, 0], [0, 0], 1, 100.0, ("a", "b")) == [[("⡀", "b")]]


def test_resampled_values_repeat_until_a_sample_is_missing() -> None:
    samples = [sample(float(at), held=float(at)) for at in (0, 1, 2, 7, 8, 9)]
    values = resample(samples, lambda each: each.at, lambda each: each.gpus_held, 0.0, 10.0, 1.0, 20)
    assert values[:6] == [0, 0, 1, 1, 2, 2]
    assert values[8:13] == [None] * 5
    assert values[14:] == [7, 7, 8, 8, 9, 9]


def test_resampled_place_with_several_samples_is_their_mean() -> None:
    samples = [sample(float(at), held=float(at)) for at in range(10)]
    values = resample(samples, lambda each: each.at, lambda each: each.gpus_held, 0.0, 10.0, 1.0, 2)
    assert values == [2.0, 7.0]


def test_sparkline_shows_gaps_and_heights() -> None:
    assert sparkline([0, 50, None, 100], 100) == "▁▄ █"
    assert heat(0) == "heat-0"
    assert heat(100) == heat(250) == "heat-15"
    assert [round_up(value) for value in (0, 1, 3, 77, 430, 9_000)] == [1, 1, 4, 80, 500, 10_000]


# -- history ---------------------------------------------------------------------------------------


def test_history_is_bounded_and_survives_a_restart_of_the_controller_as_a_gap() -> None:
    kept = PulseHistory()
    kept.put((), [sample(60.0 * minute) for minute in range(2_000)])
    assert len(kept.minutes) == MINUTES_KEPT
    for second in range(700):
        kept.put([sample(125_000.0 + second)])
    assert len(kept.seconds) == SECONDS_KEPT
    # The controller has started again: its rings have one new sample only.
    kept.put([sample(126_000.0, held=3.0)], [])
    assert kept.latest is not None
    assert kept.latest.gpus_held == 3.0
    values = kept.values(lambda each: each.gpus_held, 126_000.0, 600.0, 60)
    assert values[0] == 20.0
    assert values[-1] is None
    assert None in values[30:50]


def test_graphs_have_a_gap_where_two_samples_are_missing() -> None:
    """One missing sample makes no gap: the sample before it is repeated."""
    for step_s, range_s, put in ((1.0, 600.0, "seconds"), (60.0, 86_400.0, "minutes")):
        places, kept = round(range_s / step_s), PulseHistory()
        samples = [sample(place * step_s) for place in range(places) if place not in (10, 20, 21, 30, 31, 32)]
        kept.put(**{"seconds": (), put: samples})
        values = kept.values(lambda each: each.gpus_held, range_s, range_s, places)
        assert [place for place in range(places) if values[place] is None] == [21, 31, 32], put


def test_minutes_grow_while_only_seconds_arrive() -> None:
    kept = PulseHistory()
    for second in range(600):
        kept.put([sample(1_000.0 + second)])
    assert 9 <= len(kept.minutes) <= 11


def test_same_samples_twice_change_nothing() -> None:
    kept = PulseHistory()
    kept.put(history()[-5:], history())
    before = list(kept.seconds), list(kept.minutes)
    kept.put(history()[-5:], history())
    assert (kept.seconds, kept.minutes) == before


def test_change_is_measured_against_an_hour_before() -> None:
    kept = PulseHistory()
    kept.put((), [sample(60.0 * minute, waiting=float(minute)) for minute in range(120)])
    earlier = kept.before(3_600.0)
    assert earlier is not None
    assert earlier.waiting == 59.0
    assert kept.before(86_400.0) is None


# -- alarms ----------------------------------------------------------------------------------------


def found(**changes: object) -> list[tuple[str, str, Jump]]:
    arguments = {"nodes": (), "running": {}, "failed": {}, "waiting_long": 0, "now": NOW, **changes}
    return [(alarm.style, alarm.text, alarm.jump) for alarm in alarms(**arguments)]  # type: ignore[arg-type]


def test_no_alarm_without_trouble() -> None:
    running = {1: job(1, JobState.RUNNING, time_limit_s=7_200.0, started_at=NOW - 60)}
    assert found(nodes=nodes()[:2], running=running, failed={3: NOW - 4_000}) == []


def test_alarms_of_the_controller_come_with_the_samples() -> None:
    [(style, text, _)] = found(controller=("a commit to the store has taken 12s\x1b[2J and is not done",))
    assert style == "bad"
    assert text.startswith("controller: a commit to the store has taken 12s")
    assert "\x1b" not in text


def test_alarms_of_nodes_and_gpus() -> None:
    sick = node("a", [gpu(0, 7, health=GpuHealth.CORDONED, why="xid 79"), gpu(1)])
    lost = node("b", [gpu(0)], NodeState.DOWN, why="no report")
    drained = node("c", [gpu(0)], NodeState.DRAINED, why="new fan")
    assert found(nodes=(drained, sick, lost)) == [
        ("bad", "b is down: no report", Jump("node", "b")),
        ("bad", "a:0 cordoned xid 79, job 7 on it", Jump("node", "a")),
        ("warn", "c is drained: new fan", Jump("node", "c")),
    ]


def test_alarms_of_jobs() -> None:
    running = {
        1: job(1, JobState.RUNNING, idle_since=NOW - 2_000, gpus=8.0, user="gus"),
        2: job(2, JobState.RUNNING, time_limit_s=1_000.0, started_at=NOW - 950),
        3: job(3, JobState.RUNNING, silent=("gpu09",), user="bo"),
    }
    assert found(running=running) == [
        ("bad", "job 3 (bo): no report from gpu09", Jump("job", 3)),
        ("warn", "job 1 (gus): its 8 GPUs are idle", Jump("job", 1)),
        ("warn", "job 2: 50s until its time limit", Jump("job", 2)),
    ]


def test_alarms_that_count_jobs_open_the_queue_with_a_filter() -> None:
    running = {
        number: job(number, JobState.RUNNING, time_limit_s=1_000.0, started_at=NOW - 950) for number in (4, 5)
    }
    assert found(running=running, failed={8: NOW - 60, 9: NOW - 7_000}, waiting_long=3) == [
        ("warn", "1 job failed in the last 1h00m", Jump("filter", "state:failed")),
        ("warn", "2 jobs have used 90% of their time limits", Jump("filter", "id:^(4|5)$")),
        ("warn", "3 jobs waited much longer than usual", Jump("filter", "waits:long")),
    ]


# -- panels ----------------------------------------------------------------------------------------


def test_wall_shows_load_health_and_free_gpus() -> None:
    wall = GpuWall()
    shown = node("a", [gpu(0, 1, load=99), gpu(1, health=GpuHealth.LOST), gpu(2), gpu(3, 2, load=0)])
    (row,) = wall.rows([replace(shown, labels={})], 60, 10)
    text = "".join(text for text, _ in row.pieces)
    assert text.split()[0] == "a"
    assert {"█", SICK, FREE, "▁"} <= set(text)
    assert row.jump == Jump("node", "a")


def test_wall_of_500_nodes_fits_a_large_terminal_without_names() -> None:
    many = [node(f"gpu{number:03}", [gpu(at, 1, load=80) for at in range(8)]) for number in range(500)]
    rows = GpuWall().rows([replace(each, labels={}) for each in many], 200, 40)
    assert len(rows) <= 40
    assert sum(text.count("▇") for row in rows for text, _ in row.pieces) == 4_000


def test_wall_draws_a_node_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    real = GpuWall._cells.__globals__["_draw"]
    monkeypatch.setitem(
        GpuWall._cells.__globals__, "_draw", lambda node: drawn.append(node.name) or real(node)
    )
    wall, several = GpuWall(), list(nodes())
    wall.rows(several, 100, 10)
    wall.rows(several, 100, 10)
    wall.rows([replace(several[0], why="new"), *several[1:]], 100, 10)
    assert drawn == [each.name for each in several] + [several[0].name]


def test_holders_compare_projects_with_their_parts() -> None:
    shares = [
        ShareView(("lab",), "lab", 1.0, 1.0, 0.0, 0.0, 1.0),
        ShareView(("lab", "llm"), "llm", 3.0, 0.75, 0.0, 0.0, 1.0),
        ShareView(("lab", "vision"), "vision", 1.0, 0.25, 0.0, 0.0, 1.0),
    ]
    running = [
        job(1, JobState.RUNNING, project="llm", gpus=2.0),
        job(2, JobState.RUNNING, project="vision", gpus=9.0),
    ]
    title, first, second = holders(running, shares, 32, 70, 6)
    assert "GPUs by project" in "".join(text for text, _ in title.pieces)
    texts = ["".join(text for text, _ in row.pieces) for row in (first, second)]
    assert texts[0].split()[:2] == ["vision", "9"]
    assert texts[0].endswith("fair 8")
    assert texts[1].split()[:2] == ["llm", "2"]
    assert texts[1].endswith("fair 24")
    assert any(style == "warn" and text for text, style in first.pieces)
    assert not any(style == "warn" and text for text, style in second.pieces)


# -- the view ----------------------------------------------------------------------------------------


def pulse(*more: Changes, **how: Any) -> Screen:
    """The application with three hours of samples, in the view Pulse."""
    first = replace(everything(), minutes=history(), seconds=history()[-1:])
    return Screen(first, *more, first_view="pulse", **how)


async def test_pulse_is_the_first_view_and_each_row_opens_something() -> None:
    screen = pulse()
    async with screen.run_test(size=(140, 44)) as pilot:
        await settled(pilot)
        assert screen.view.NAME == "pulse"
        assert "GPUs held" in screen.text()
        assert "every GPU" in screen.text()
        await press(pilot, "enter")
        assert screen.view.NAME == "nodes"
        await press(pilot, "0", "j", "enter")
        assert screen.view.NAME == "queue"
        assert screen.view.filter_text == "state:queued"


async def test_alarm_opens_the_node() -> None:
    screen = pulse()
    async with screen.run_test(size=(140, 44)) as pilot:
        await settled(pilot)
        assert "▲ " in screen.text().splitlines()[0]
        await press(pilot, "exclamation_mark")
        await until(pilot, lambda: isinstance(screen.screen, Menu))
        assert "Xid 79" in screen.text()
        await press(pilot, "enter")
        await until(pilot, lambda: screen.view.NAME == "node")
        assert screen.view.nodes()[0].name == "node-3"


async def test_time_of_the_graphs_is_changed_by_brackets() -> None:
    screen = pulse()
    async with screen.run_test(size=(140, 44)) as pilot:
        await settled(pilot)
        assert "last 1h00m" in screen.text()
        await press(pilot, "right_square_bracket")
        assert "last 1d00h" in screen.text()
        await press(pilot, "left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert "last 10m00s" in screen.text()


async def test_samples_of_the_stream_move_the_figures() -> None:
    screen = pulse()
    async with screen.run_test(size=(140, 44)) as pilot:
        await settled(pilot)
        screen.recording.put(
            replace(Changes(), connection=everything().connection, seconds=(sample(NOW, 7.0),))
        )
        await settled(pilot)
        await until(pilot, lambda: "held     7" in screen.text())


async def test_jobs_at_their_quota_are_an_alarm_until_they_start() -> None:
    screen = Screen(everything(), first_view="pulse")
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        before = len(screen.model.alarms)
        waits = replace(job(12), reason=Reason.QUOTA)
        screen.recording.put(Changes(LIVE, jobs=(waits, replace(waits, id=13, label="13"))))
        await settled(pilot)
        screen.model.find_alarms()
        (alarm,) = [each for each in screen.model.alarms if "quota" in each.text]
        assert (alarm.text, alarm.style) == ("2 jobs wait for a quota", "warn")
        screen.show_jobs(str(alarm.jump.name))
        assert {each.id for each in screen.model.jobs} == {12, 13}
        screen.recording.put(Changes(LIVE, jobs=(job(12, JobState.RUNNING), job(13))))
        await settled(pilot)
        screen.model.find_alarms()
        assert len(screen.model.alarms) == before


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
async def test_number_of_alarms_is_in_the_header_at_every_width(width: int) -> None:
    screen = Screen()
    async with screen.run_test(size=(width, 24)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: screen.model.alarms)
        header = screen.text().splitlines()[0]
        assert f" {len(screen.model.alarms)}  ●" in header
