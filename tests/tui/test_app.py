"""The screen under keys and changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tui.recorded import LIVE, NOW, everything, gpu, job, jobs, node
from tests.tui.screens import Screen, burst, press, settled, until
from tui.data.cluster_feed import Changes, ConnectionStatus
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.menu import Menu
from tui.views.job_details import JobDetailsView
from tui.views.queue import QueueView
from tui.widgets.header_and_footer import StatusLine
from tui.widgets.table import ListTable
from wire.names import GpuHealth, JobState

LOST = ConnectionStatus("lost", NOW - 12, "no program listens there", NOW + 3)


def table(screen: Screen) -> ListTable[int, object]:
    view = screen.view
    assert isinstance(view, QueueView)
    return view.table  # type: ignore[return-value]


# -- moving -------------------------------------------------------------------------------


async def test_cursor_keeps_its_job_and_its_screen_line() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "G", *"kkkkk")
        cursor, place = screen.model.jobs.cursor, screen.model.jobs.index - table(screen).top
        screen.recording.put(
            Changes(LIVE, jobs=tuple(job(number, JobState.RUNNING) for number in range(100, 130)))
        )
        await settled(pilot)
        assert screen.model.jobs.cursor == cursor
        assert screen.model.jobs.index - table(screen).top == place
        line = screen.text().splitlines()[3 + place]
        assert line.startswith("▌")
        assert line.split()[1] == screen.model.jobs.rows[cursor or 0].label


async def test_cursor_follows_a_job_that_ends() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "j", "j", "space")
        marked = set(screen.model.jobs.marks)
        assert marked == {3}
        screen.model.jobs.follow(3)
        screen.recording.put(Changes(LIVE, jobs=(job(3, JobState.COMPLETED),)))
        await settled(pilot)
        assert screen.model.jobs.cursor == 3
        assert screen.model.jobs.marks == {3}
        assert 0 <= screen.model.jobs.index - table(screen).top < table(screen).page


async def test_vim_keys_and_arrows_move_alike() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for keys, index in (
            ("jj", 2),
            (["down"], 3),
            (["up"], 2),
            ("k", 1),
            ("G", len(screen.model.jobs) - 1),
            ("g", 0),
            (["pagedown"], 18),
        ):
            await press(pilot, *keys)
            assert screen.model.jobs.index == index
        await press(pilot, "ctrl+u")
        assert screen.model.jobs.index == 0


async def test_views_and_back() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(screen.view, JobDetailsView) and screen.view.pane.has_focus)
        assert "Queue › 1 dpo" in screen.text()
        await press(pilot, "escape")
        assert screen.view.NAME == "queue"
        await press(pilot, "2", "j", "enter")
        await until(pilot, lambda: screen.view.NAME == "node" and screen.view.pane.has_focus)
        assert "Nodes › node-2" in screen.text()
        await press(pilot, "3")
        assert screen.view.NAME == "events"
        await press(pilot, *["tab"] * (len(screen.roots) - 2))
        assert screen.view.NAME == "queue"


async def test_a_number_in_the_palette_opens_that_job() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await press(pilot, "colon", "1", "0", "enter")
        await until(
            pilot, lambda: isinstance(screen.view, JobDetailsView) and "no two nodes" in screen.text()
        )
        assert "-3  gpus" in screen.text()
        assert "4th in the queue" in screen.text()


async def test_a_suggestion_has_its_command_which_can_be_copied() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "colon", "1", "0", "enter")
        await until(pilot, lambda: "$ corral job set 10 --gpus 8" in screen.text())
        assert "with 8 GPUs instead of 16" in screen.text()
        await press(pilot, "y", "enter")
        await until(pilot, lambda: "copied: corral job set 10 --gpus 8" in screen.text())


async def test_a_gpu_out_of_service_shows_the_job_that_still_runs_on_it() -> None:
    cordoned = gpu(0, 1, load=40, health=GpuHealth.CORDONED, why="noisy fan")
    screen = Screen(replace(everything(), nodes=(node("node-1", [cordoned]),)))
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "2")
        await until(pilot, lambda: "cordoned noisy fan  1 " in screen.text())
        assert "✗ out" in screen.text()


async def test_the_card_of_a_node_names_jobs_without_gpus() -> None:
    busy = node("node-1", [gpu(0, 1, load=40)], jobs=(1, 12))
    screen = Screen(replace(everything(), nodes=(busy,)))
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "2")
        await until(pilot, lambda: "without GPUs  12 rlhf-ppo" in screen.text())


async def test_a_narrow_screen_shows_the_filter_rather_than_the_order() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "slash", *"user:alice", "space", *"state:que", "enter")
        assert "/user:alice stat…" in screen.text()
        assert "by order" not in screen.text()


async def test_what_cannot_be_held_is_counted_and_the_held_jobs_stay_marked() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        screen.model.jobs.marks.update((1, 12))
        await press(pilot, "H")
        await until(
            pilot, lambda: "12 held, 1 left out: only queued jobs can be held and released" in screen.text()
        )
        await press(pilot, "R")
        await until(pilot, lambda: "12 released, 1 left out" in screen.text())


async def test_unknown_job_is_reported() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await press(pilot, "colon", *"4711", "enter")
        await until(pilot, lambda: "there is no job 4711" in screen.text())


# -- filter and order -----------------------------------------------------------------------


async def test_filter_narrows_with_every_key_and_escape_clears_it() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await press(pilot, "slash", *"user:bob", "enter")
        assert "8 of 40" in screen.text()
        assert table(screen).has_focus
        await press(pilot, "slash", *" !dpo", "escape")
        assert "8 of 40" in screen.text()
        await press(pilot, "escape")
        assert " of 40" not in screen.text()


async def test_invalid_regex_is_reported_and_changes_nothing() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "slash", *"dpo", "left_parenthesis")
        assert "not a valid regex yet" in screen.text()
        number = sum(row.name == "dpo" for row in jobs())
        assert f"{number} of 40" in screen.text()


async def test_columns_sort_and_reverse() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        for _ in range(2):
            await press(pilot, "s")
            menu = screen.screen
            assert isinstance(menu, Menu)
            menu._choices.jump([entry.name for entry in menu._choices.entries].index("user"))
            await press(pilot, "enter")
        users = [row.user for row in screen.model.jobs]
        assert users == sorted(users, reverse=True)
        assert "by user ▾" in screen.text()


async def test_click_on_a_title_sorts_by_it() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.click(table(screen), offset=(12, 0))
        assert screen.model.jobs.sort == "name"
        await pilot.click(table(screen), offset=(20, 5))
        assert screen.model.jobs.index == 4


# -- losing the controller ------------------------------------------------------------------


async def test_lost_connection_keeps_the_data_and_refuses_changes() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        screen.recording.put(Changes(LOST))
        await until(pilot, lambda: "stale 12s" in screen.text())
        assert "vit-h-pretrain" in screen.text()
        await press(pilot, "C")
        assert not isinstance(screen.screen, ConfirmDialog)
        assert "the connection is lost: no changes are possible now" in screen.text()
        screen.recording.put(Changes(LIVE))
        await until(pilot, lambda: "● live" in screen.text())
        await press(pilot, "C")
        assert isinstance(screen.screen, ConfirmDialog)


async def test_open_question_is_disabled_when_the_connection_is_lost() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "C")
        screen.recording.put(Changes(LOST))
        await until(pilot, lambda: not isinstance(screen.screen, ConfirmDialog))
        assert screen.ordered == []


async def test_screen_stops_the_feed_when_it_ends() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await pilot.press("q")
        screen.recording.put(everything())
        screen.deliver(lambda: screen.show_message("too late"))
    screen.take()
    assert screen.recording.stopped
    assert screen.return_value == 0


# -- logs -----------------------------------------------------------------------------------

LOG = "".join(f"step {number} loss {1 / (1 + number):.3f}\n" for number in range(200))
LOG += "RuntimeError: CUDA out of memory\n" + "tail\n" * 60


async def test_log_is_followed_until_the_user_scrolls_up() -> None:
    screen = Screen(output=LOG.encode())
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "enter")
        await until(pilot, lambda: "261 lines" in screen.text())
        view = screen.view
        assert isinstance(view, JobDetailsView)
        assert view.output.at_end
        await press(pilot, "g")
        assert "step 0 loss" in screen.text()
        assert not view.output.following
        await press(pilot, "e")
        assert "CUDA out of memory" in screen.text()
        await press(pilot, "e")
        assert "no error below" in screen.text()
        await press(pilot, "ampersand", *"step 1..".replace(" ", "."), "enter")
        assert "step 199" in screen.text()
        assert "tail" not in screen.text()
        await press(pilot, "escape", "f")
        assert view.output.at_end
        await press(pilot, "o")
        await until(pilot, lambda: "nothing serious" in screen.text())


async def test_long_lines_wrap_on_request() -> None:
    screen = Screen(output=("x" * 500 + "END\n").encode())
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "enter")
        await until(pilot, lambda: "1 line " in screen.text())
        assert "END" not in screen.text()
        await press(pilot, "w")
        assert "END" in screen.text()


# -- commands to copy -----------------------------------------------------------------------


async def test_commands_for_the_selected_row_can_be_copied() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        assert "corral job show 1" in screen.menus.commands()
        assert "corral job cancel 1" in screen.menus.commands()
        await press(pilot, "y", "enter")
        assert screen.clipboard == "corral job show 1"
        assert "copied: corral job show 1" in screen.text()
        await press(pilot, "space", "space")
        assert "corral job cancel 1 2" in screen.menus.commands()
        await press(pilot, "2")
        assert "corral nodes resume node-1" in screen.menus.commands()


async def test_messages_disappear_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        screen.show_message("hear, hear")
        await pilot.pause()
        assert "hear, hear" in screen.text()
        monkeypatch.setattr(screen.query_one(StatusLine), "_until", 0.0)
        screen._tick()
        await pilot.pause()
        assert "hear, hear" not in screen.text()
        assert "on node-1 GPU 0,1" in screen.text()


async def test_new_node_is_drawn() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "2")
        screen.recording.put(Changes(LIVE, nodes=(node("node-10", ()),)))
        await until(pilot, lambda: "node-10" in screen.text())
        assert "node-10" in screen.text().split("node-4")[1]


# -- keys typed ahead -------------------------------------------------------------------------


async def test_keys_typed_ahead_reach_the_opened_view() -> None:
    screen = Screen()
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        burst(
            screen,
            "G",
            "k",
            "k",
            "slash",
            *"HRC",
            "enter",
            "slash",
            "backspace",
            "backspace",
            "backspace",
            "enter",
            "j",
        )
        await until(pilot, lambda: not screen.busy and not screen._filter.display)
        assert (screen.ordered, screen.model.jobs.filter.text) == ([], "")
        assert not isinstance(screen.screen, ConfirmDialog)
        burst(screen, "N", *"true", "tab", "tab", "backspace", "8", "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        ((_, spec),) = screen.ordered
        assert (spec.command, spec.gpus) == (("true",), 8)  # type: ignore[attr-defined]


async def test_closed_view_takes_no_keys() -> None:
    screen = Screen(output=LOG.encode())
    async with screen.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        for _ in range(5):
            burst(screen, "enter", "o", "w", "escape", "2", "enter", "escape", "1", "j")
        await until(pilot, lambda: screen.model.jobs.index == 5)
        assert screen.view.NAME == "queue"


def test_updates_wait_for_keys_but_not_for_ever() -> None:
    screen = Screen()
    screen._taken_at, screen._woken_at, screen.key_at, screen._update_took_s = 90.0, 100.0, 90.0, 0.0
    assert screen._wait_s(100.0) <= 0, "the first change after a pause is shown at once"
    screen._taken_at, screen._update_took_s = 100.0, 0.01
    assert screen._wait_s(100.0) == pytest.approx(0.2), "an update of 10 ms at most five times a second"
    screen._taken_at, screen.key_at = 99.0, 100.0
    assert 0 < screen._wait_s(100.05) <= 0.1, "a key came 50 ms before"
    screen.key_at = 100.4
    assert screen._wait_s(100.4) <= 0, "the change has waited for 0.4 s"


async def test_only_rows_that_have_changed_are_compared_and_shown() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        table = screen.queue_view.table
        table.sync_rows()
        assert table._lines_with_other_rows() == []
        shown = screen.model.jobs[2]
        screen.recording.put(Changes(LIVE, jobs=(replace(shown, name="renamed"),)))
        await until(pilot, lambda: "renamed" in screen.text())
        assert "renamed" in screen.text().split("\n")[2 + 1 + 2]
        await press(pilot, "j", "space")
        assert table._lines_with_other_rows() == [1, 2, 3]
