"""The tabs of a job: how they are chosen, what they show, and the advice that one key applies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tui.recorded import LIVE, RecordedClient, job
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.dialogs.confirm import ConfirmDialog
from tui.job.tab_line import TABS
from tui.views.job_details import JobDetailsView
from wire.api.forecasts import Easing, Explanation
from wire.api.reasons import Ousted, Why
from wire.names import JobState, Reason


async def opened(screen: Screen, pilot: object, number: int) -> JobDetailsView:
    await settled(pilot)
    screen.open_job(number)
    await until(pilot, lambda: isinstance(screen.view, JobDetailsView) and screen.view.pane.has_focus)
    view = screen.view
    assert isinstance(view, JobDetailsView)
    return view


async def test_waiting_job_opens_with_why_and_goes_to_the_log_when_it_starts() -> None:
    screen = Screen(output=b"step 1\n")
    async with screen.run_test(size=(120, 40)) as pilot:
        view = await opened(screen, pilot, 10)
        await until(pilot, lambda: "or now" in screen.text())
        assert view.tab == "why"
        for sign in (
            "500.0 of 1,000",
            "959.0",
            "1,473.5 points",
            "before it",
            "#1",
            "and 1 more",
        ):
            assert sign in screen.text(), sign
        screen.recording.put(Changes(LIVE, jobs=(job(10, JobState.RUNNING, started_at=1.0),)))
        await until(pilot, lambda: view.tab == "log" and "step 1" in screen.text())


async def test_why_tab_of_a_running_job_shows_the_points_of_its_nodes_and_of_others() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        view = await opened(screen, pilot, 1)
        view.open_tab("why")
        await until(pilot, lambda: "not on" in screen.text())
        lines = screen.text().split("\n")
        [placed] = [line for line in lines if "placed on" in line]
        [other] = [line for line in lines if "not on" in line]
        assert ("node-2" in placed, "75.0" in placed) == (True, True)
        assert ("node-3" in other, "25.0" in other) == (True, True)


async def test_chosen_tab_stays_when_the_job_starts() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        view = await opened(screen, pilot, 10)
        await press(pilot, "tab")
        assert view.tab == "attempts"
        screen.recording.put(Changes(LIVE, jobs=(job(10, JobState.RUNNING, started_at=1.0),)))
        await settled(pilot)
        assert view.tab == "attempts"


async def test_tab_keys_and_clicks_go_through_all_tabs() -> None:
    screen = Screen(output=b"step 1\n")
    async with screen.run_test(size=(120, 40)) as pilot:
        view = await opened(screen, pilot, 10)
        signs = {
            "log": "step 1",
            "why": "or now",
            "attempts": "preempted by 6",
            "GPUs": "holds no nodes now",
            "spec": "gpu_models",
            "events": "job 10 was preempted by job 6",
        }
        for _ in TABS:
            await press(pilot, "tab")
            await until(pilot, lambda: signs[view.tab] in screen.text())
            assert view.pane.has_focus
        assert view.tab == "why"
        await press(pilot, "shift+tab")
        assert view.tab == "log"
        line = view._tabs.region
        at = screen.text().split("\n")[line.y].index("spec")
        await pilot.click(offset=(at + 1, line.y))
        assert view.tab == "spec"


async def test_gpus_of_a_running_job_are_drawn_with_their_loads() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        view = await opened(screen, pilot, 2)
        view.open_tab("GPUs")
        await until(pilot, lambda: "node-2  8 CPUs" in screen.text() and "▇" * 12 in screen.text())


async def test_first_advice_is_applied_by_1_after_a_confirmation() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await opened(screen, pilot, 10)
        await until(pilot, lambda: "or now" in screen.text())
        await press(pilot, "1")
        assert isinstance(screen.screen, ConfirmDialog)
        await until(pilot, lambda: "Start job 10 sooner?" in screen.text())
        assert "corral job set 10 --gpus 8" in screen.text()
        assert not screen.ordered
        await press(pilot, "tab", "enter")
        await until(pilot, lambda: screen.ordered == [("set", 10), ("changes", {"gpus": 8.0})])


ADVICE = [
    (Easing("if it is released", command=("job", "release", "10")), [("release", 10)]),
    (
        Easing("if node-4 is resumed", command=("nodes", "resume", "node-4", "node-3:2")),
        [("resume", "node-4"), ("resume", ("node-3", "2"))],
    ),
    (
        Easing(
            "if job 1 is preempted",
            command=("job", "preempt", "--hold", "1"),
            victims=(Ousted(1, "1", "sft", "bob", 3.5),),
        ),
        [("preempt", 1)],
    ),
]


@pytest.mark.parametrize(("easing", "ordered"), ADVICE, ids=["release", "resume", "preempt"])
async def test_advice_that_is_a_command_is_carried_out(
    easing: Easing, ordered: list[tuple[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = Why(Reason.RESOURCES, "it waits")
    monkeypatch.setattr(
        RecordedClient, "explain", lambda *_, **__: Explanation(job(10), why, easings=(easing,))
    )
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await opened(screen, pilot, 10)
        await until(pilot, lambda: "or now" in screen.text())
        await press(pilot, "A")
        await until(pilot, lambda: easing.sentence in screen.text())
        await press(pilot, "tab", "enter")
        await until(pilot, lambda: screen.ordered == ordered)


async def test_1_goes_to_the_queue_without_advice_and_changes_nothing_in_read_only_mode() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await opened(screen, pilot, 1)
        await press(pilot, "1")
        assert screen.view.NAME == "queue"
    screen = Screen(read_only=True)
    async with screen.run_test(size=(120, 40)) as pilot:
        await opened(screen, pilot, 10)
        await until(pilot, lambda: "or now" in screen.text())
        await press(pilot, "1")
        await until(pilot, lambda: "this screen is read-only" in screen.text())


async def test_question_about_an_advice_closes_when_the_job_starts() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await opened(screen, pilot, 10)
        await until(pilot, lambda: "or now" in screen.text())
        await press(pilot, "1")
        assert isinstance(screen.screen, ConfirmDialog)
        started = replace(job(10, JobState.RUNNING), started_at=1.0)
        screen.recording.put(Changes(LIVE, jobs=(started,)))
        await until(pilot, lambda: "nothing left to do" in screen.text())
