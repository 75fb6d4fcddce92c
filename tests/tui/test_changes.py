"""Actions that change jobs and nodes: the questions before them, the forms, and a read-only screen."""

from __future__ import annotations

from textual.widgets import Button, Input

from tests.tui.recorded import LIVE, job
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from wire.names import JobState


async def test_cancel_asks_with_the_focus_on_back() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "space", "space", "C")
        ask = screen.screen
        assert isinstance(ask, ConfirmDialog)
        assert "Cancel 2 jobs?" in screen.text()
        assert "corral job cancel 1 2" in screen.text()
        assert ask.query_one("#back", Button).has_focus
        await press(pilot, "enter")
        assert (screen.ordered, screen.model.jobs.marks) == ([], {1, 2})
        await press(pilot, "C", "right", "enter")
        await until(pilot, lambda: len(screen.ordered) == 2)
        assert screen.ordered == [("cancel", 1), ("cancel", 2)]
        await until(pilot, lambda: "2 cancelled" in screen.text())
        assert screen.model.jobs.marks == set()


async def test_failed_actions_are_reported_and_stay_marked() -> None:
    screen = Screen(refuse=frozenset({2}))
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "space", "space", "space", "C", "right", "enter")
        await until(pilot, lambda: "2 cancelled, 1 failed: 2: job 2 has already ended" in screen.text())
        assert screen.model.jobs.marks == {2}


async def test_cancel_of_many_jobs_requires_their_number() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "slash", *"state:que|run", "enter", "asterisk", "C")
        number = len(screen.model.jobs.chosen())
        assert number > len(screen.model.jobs.marks), "the elements of a folded array count"
        do = screen.screen.query_one("#do", Button)
        assert do.disabled
        assert isinstance(screen.focused, Input)
        await press(pilot, *str(number))
        assert not do.disabled
        await press(pilot, "backspace")
        assert do.disabled


async def test_question_is_disabled_when_its_jobs_have_ended() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "space", "space", "C")
        screen.recording.put(Changes(LIVE, jobs=(job(1, JobState.COMPLETED),)))
        await until(pilot, lambda: "Cancel 1 job?" in screen.text())
        assert screen.screen.query_one("#back", Button).has_focus
        screen.recording.put(Changes(LIVE, jobs=(job(2, JobState.FAILED),)))
        await until(pilot, lambda: not isinstance(screen.screen, ConfirmDialog))
        assert "nothing left to do" in screen.text()
        assert screen.ordered == []


async def test_waiting_jobs_are_held_and_released() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "H")
        assert "only queued jobs can be held and released" in screen.text()
        screen.model.jobs.follow(12)
        await press(pilot, "H")
        await until(pilot, lambda: "12 held" in screen.text())
        await press(pilot, "R")
        await until(pilot, lambda: "12 released" in screen.text())
        assert screen.ordered == [("hold", 12), ("release", 12)]


async def test_drain_requires_a_reason() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "2", "D", *"new", "space", *"fan")
        assert "corral nodes drain node-1 --why 'new fan'" in screen.text()
        await press(pilot, "enter")
        await until(pilot, lambda: screen.ordered)
        await press(pilot, "G", "U")
        await until(pilot, lambda: len(screen.ordered) == 2)
        assert screen.ordered == [("drain", ("node-1", "new fan")), ("resume", "node-4")]


async def test_form_drains_a_node_by_a_time() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "2", "T", *"2020-05-01")
        assert "corral nodes drain node-1 --by 2020-05-01" in screen.text()
        assert "the time is in the past" in screen.text()
        await press(pilot, "ctrl+s")
        assert screen.ordered == []
        await press(pilot, *["backspace"] * 10, *"2h", "down", *"new", "space", *"fan")
        assert "corral nodes drain node-1 --by 2h --why 'new fan'" in screen.text()
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        [(action, (name, why, at))] = screen.ordered
        assert (action, name, why) == ("drain", "node-1", "new fan")
        assert abs(at - screen.model.now() - 7_200) < 60
        await until(pilot, lambda: "node-1 draining" in screen.text())


async def test_form_checks_while_typing_and_submits() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "N")
        form = screen.screen
        assert isinstance(form, FormDialog)
        assert form.query_one("#do", Button).disabled
        await press(pilot, *"sleep", "space", *"60", "tab", "tab", "x")
        assert "write 8 or 0.25" in screen.text()
        await press(pilot, "ctrl+s")
        assert screen.screen is form
        await press(pilot, "backspace", "backspace", "2")
        assert "corral submit --gpus 2 --workdir / -- sleep 60" in screen.text()
        await until(pilot, lambda: "starts in 30m00s on node-3" in screen.text())
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "submitted 41" in screen.text())
        ((verb, spec),) = screen.ordered
        assert verb == "submit"
        assert (spec.command, spec.gpus, spec.name) == (("sleep", "60"), 2, "sleep")  # type: ignore[attr-defined]


async def test_read_only_screen_changes_nothing() -> None:
    screen = Screen(read_only=True)
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "C", "H", "R", "N")
        assert screen.ordered == []
        assert not isinstance(screen.screen, (ConfirmDialog, FormDialog))
        assert "this screen is read-only" in screen.text()
        assert "cancel" not in screen.text()
        assert "read-only" in screen.text().splitlines()[-1]
        await press(pilot, "question_mark")
        assert "Changing something" not in screen.text()
