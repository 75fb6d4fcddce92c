"""What-if in forms: requested while the user types, shown in a few lines, without waiting."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.tui.recorded import LIVE, NOW, RecordedClient
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.data.what_if_lines import what_if_lines
from tui.dialogs import live_what_if
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from wire.api.forecasts import Shift, WhatIf, WhatIfAnswer
from wire.api.nodes import LeavingJob
from wire.api.problem import Problem
from wire.http.client import Refused
from wire.names import JobState


def lines_of(answer: WhatIfAnswer, lines: int = 9) -> list[str]:
    return ["".join(text for text, _ in line) for line in what_if_lines(answer, lines)]


def shift(job: int, was: float | None, becomes: float | None, new: bool = False) -> Shift:
    def at(seconds: float | None) -> float | None:
        return None if seconds is None else NOW + seconds

    return Shift(job, str(job), "train", "ada", at(was), at(becomes), ("gpu01",), new)


def test_longest_delays_come_first_and_unknown_starts_count_as_longest() -> None:
    answer = WhatIfAnswer(NOW, (shift(1, 60, 0), shift(2, 60, 7260), shift(3, 60, None)), 4)
    assert lines_of(answer) == [
        "2 start later, 1 starts sooner, 4 as now",
        "worst   3      in 1m00s → not known   train  ada",
        "later   2      in 1m00s → in 2h01m    train  ada",
        "best    1      in 1m00s → now         train  ada",
    ]
    assert len(lines_of(answer, 2)) == 2


def test_what_if_of_a_new_job_shows_its_start() -> None:
    assert lines_of(WhatIfAnswer(NOW, (shift(9, None, 1800, new=True),), 2)) == [
        "starts in 30m00s on gpu01",
        "no other job starts sooner or later",
    ]


def test_jobs_without_a_known_start_are_not_shown_as_unchanged() -> None:
    assert lines_of(WhatIfAnswer(NOW, (), 0, not_known=3)) == [
        "no job with a known start starts sooner or later, 3 not known"
    ]
    moved = (shift(1, 60, None), shift(2, None, 60))
    assert lines_of(WhatIfAnswer(NOW, moved, 4, not_known=1, now_unknown=1, now_known=1))[0] == (
        "1 starts later, 1 starts sooner, 4 as now, 1 not known; "
        "the start of 1 job would no longer be known; the start of 1 job would become known"
    )


def test_refused_what_if_shows_only_the_reason() -> None:
    assert lines_of(WhatIfAnswer(NOW, (), 3, ("there is no node 'x'",))) == [
        "would be refused: there is no node 'x'"
    ]


def test_incomplete_what_if_is_explained() -> None:
    (line,) = lines_of(WhatIfAnswer(NOW, (), 3, whole=False))
    assert line == "no job starts sooner or later; starts after a job without a time limit are unknown"


def test_cut_off_what_if_shows_no_invented_start() -> None:
    answer = WhatIfAnswer(
        NOW,
        (shift(1, 60, None), shift(2, 60, 7260), shift(3, None, 60)),
        4,
        later=300,
        sooner=20,
        trifles=7,
        unknown=9_000,
        later_h=312.4,
        sooner_h=5.44,
        complete=False,
        covers_until=NOW + 86_400,
    )
    assert lines_of(answer) == [
        "300 start later, 20 start sooner, 4 as now; +312 h / -5.4 h waited; 7 jobs would move by less than "
        "a minute or 5 % of the wait; starts are known for the next 1d00h; 9,000 jobs start later",
        "worst   1      in 1m00s → after 1d00h train  ada",
        "later   2      in 1m00s → in 2h01m    train  ada",
        "best    3      after 1d00h → in 1m00s train  ada",
    ]
    assert [line[:10] for line in lines_of(answer, 3)] == ["300 start ", "worst   1 ", "best    3 "]


async def test_first_answer_is_shown_and_then_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    more = threading.Event()

    def answers(_client: RecordedClient, _wish: WhatIf, *, only_first: bool) -> WhatIfAnswer:
        asked.append(only_first)
        if only_first:
            return WhatIfAnswer(NOW, (), 5, later=3, complete=False, covers_until=NOW + 3600)
        more.wait()
        return WhatIfAnswer(NOW, (shift(1, 60, 7260),), 5, later=8)

    monkeypatch.setattr(RecordedClient, "what_if", answers)
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        try:
            await press(pilot, "C")
            await until(pilot, lambda: "3 start later, 5 as now" in screen.text())
        finally:
            more.set()
        await until(pilot, lambda: "8 start later" in screen.text())
    assert asked == [True, False]


async def test_action_does_not_wait_for_its_what_if(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[WhatIf] = []
    go = threading.Event()
    real = RecordedClient.what_if

    def slow(client: RecordedClient, wish: WhatIf, **_: bool) -> WhatIfAnswer:
        asked.append(wish)
        go.wait()
        return real(client, wish)

    monkeypatch.setattr(RecordedClient, "what_if", slow)
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        try:
            await press(pilot, "C")
            await until(pilot, lambda: asked)
            await press(pilot, "right", "enter")
            await until(pilot, lambda: screen.ordered == [("cancel", 1)])
            for _ in range(3):  # these answers are no longer needed
                await press(pilot, "j", "C", "escape")
            await press(pilot, "G", "k", "k", "k", "k", "k", "k", "k", "k", "k", "k", "C")
            assert isinstance(screen.screen, ConfirmDialog)
        finally:
            go.set()
        await until(pilot, lambda: "1 starts later" in screen.text())
        assert len(asked) == 2


async def test_refused_what_if_is_reported_and_blocks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_client: RecordedClient, _wish: WhatIf, **_: bool) -> WhatIfAnswer:
        raise Refused(403, Problem("not_allowed", "ada may not ask this"))

    monkeypatch.setattr(RecordedClient, "what_if", refuse)
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "C")
        await until(pilot, lambda: "the effect is unknown: ada may not" in screen.text())
        await press(pilot, "right", "enter")
        await until(pilot, lambda: screen.ordered == [("cancel", 1)])


async def test_what_if_without_enough_time_is_sent_again_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def busy(_client: RecordedClient, _wish: WhatIf, *, only_first: bool) -> WhatIfAnswer:
        asked.append(only_first)
        if len(asked) in (1, 2, 4):
            raise Refused(503, Problem("busy", "there was not enough time to compute an answer"))
        later = 3 if only_first else 8
        return WhatIfAnswer(NOW, (), 5, later=later, complete=not only_first, id=f"answer {len(asked)}")

    monkeypatch.setattr(RecordedClient, "what_if", busy)
    monkeypatch.setattr(live_what_if, "FIRST_PAUSE_S", 0.05)
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "C")
        await until(pilot, lambda: "not known yet: there was not enough time" in screen.text())
        await until(pilot, lambda: len(asked) > 3)
        assert "3 start later" in screen.text(), (
            "the first answer stays while the second one is asked for again"
        )
        await until(pilot, lambda: "8 start later" in screen.text())
        assert asked == [True, True, True, False, False]


async def test_dialog_shows_that_a_job_has_started_and_keeps_the_typed_text() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 40)) as pilot:
        await settled(pilot)
        waiting = list(screen.model.waiting.values())
        screen.model.jobs.marks.update({1, *(job.id for job in waiting)})
        await press(pilot, "C")
        assert isinstance(screen.screen, ConfirmDialog)
        await press(pilot, "2")
        assert "Waiting  20 leave the queue" in screen.text()
        started = replace(waiting[0], state=JobState.RUNNING, started_at=NOW - 60)
        screen.recording.put(Changes(LIVE, jobs=(started,)))
        await until(pilot, lambda: "Running  2 get SIGTERM now" in screen.text())
        assert "Waiting  19 leave the queue" in screen.text()
        await press(pilot, "1", "enter", "enter")
        await until(pilot, lambda: len(screen.ordered) == 21)


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_buttons_and_command_stay_visible(size: tuple[int, int]) -> None:
    screen = Screen()
    async with screen.run_test(size=size) as pilot:
        await settled(pilot)
        for keys in ("1N", "4E", "5E", "5N", "6N", "1C", "2D", "6C", "7A"):
            await press(pilot, keys[0])
            await until(pilot, lambda: "asking" not in screen.text())
            await press(pilot, *keys[1:])
            await until(pilot, lambda: isinstance(screen.screen, (ConfirmDialog, FormDialog)))
            await until(pilot, lambda: "Back" in screen.text() and "$ corral" in screen.text())
            assert "╰" in screen.text(), keys
            await press(pilot, "escape")
            await until(pilot, lambda: not isinstance(screen.screen, (ConfirmDialog, FormDialog)))


def test_jobs_that_a_timed_drain_moves_or_ends_are_counted() -> None:
    leaving = tuple(
        LeavingJob(number, str(number), "train", "ada", how, 9e9)
        for number, how in enumerate(("moved", "moved", "ended", "ends"))
    )
    shown = lines_of(WhatIfAnswer(NOW, (), 3, leaving=leaving))
    assert [line for line in shown if "would be" in line] == ["2 jobs would be moved", "1 job would be ended"]
