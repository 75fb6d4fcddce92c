"""The screen under keys and changes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Button, Input

from tests.tui.recorded import (
    LIVE,
    NOW,
    Tenants,
    events,
    everything,
    gpu,
    job,
    jobs,
    node,
    nodes,
    quotas,
    rebalance,
    reservations,
    shares,
)
from tests.tui.screens import Screen, burst, press, settled, until
from tui.data.cluster_feed import Changes, ConnectionStatus
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from tui.dialogs.menu import Menu
from tui.views.job_details import JobDetailsView
from tui.views.queue import QueueView
from tui.widgets.frame import StatusLine
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
        assert "1st in the queue" in screen.text()


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


# -- changing something ---------------------------------------------------------------------


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
        await press(pilot, "slash", *"step 1..".replace(" ", "."), "enter")
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


# -- hostile names, and any size --------------------------------------------------------------

EVIL = "\x1b[2J\x1b]52;c;eA==\x07[/red][@click=app.quit]\u202eab\nc\t\x9b1m\ufeff\ud800"


def hostile() -> Changes:
    """Everything a user may name, named badly."""
    rows = tuple(
        replace(row, name=EVIL, user=EVIL, project=EVIL, queue=EVIL, label=EVIL, detail=EVIL)
        for row in jobs()
    )
    hosts = tuple(
        replace(host, name=f"{EVIL}{at}", why=EVIL, labels={EVIL: EVIL}) for at, host in enumerate(nodes())
    )
    said = tuple(replace(event, kind=EVIL, text=EVIL, node=EVIL) for event in events())
    return replace(everything(), jobs=rows, nodes=hosts, events=said)


def hostile_tenants() -> Tenants:
    """The same for data that is requested."""
    moved = rebalance()
    return Tenants(
        tuple(
            replace(share, path=(*(EVIL for _ in share.path), str(at)), share=EVIL, stopped=EVIL)
            for at, share in enumerate(shares())
        ),
        tuple(replace(quota, name=f"{EVIL}{at}", edited=True) for at, quota in enumerate(quotas())),
        tuple(
            replace(
                row,
                spec=replace(row.spec, name=f"{EVIL}{at}", users=(EVIL,), projects=(EVIL,), why=EVIL),
                nodes=(EVIL,),
                by=EVIL,
            )
            for at, row in enumerate(reservations())
        ),
        replace(
            moved,
            proposals=tuple(
                replace(
                    row,
                    kind=EVIL,
                    node=EVIL,
                    label=EVIL,
                    name=EVIL,
                    moves=tuple(replace(move, label=EVIL, name=EVIL, user=EVIL) for move in row.moves),
                )
                for row in moved.proposals
            ),
            moves=tuple(
                replace(row, label=EVIL, origin=(EVIL,), node=EVIL, undone=EVIL) for row in moved.moves
            ),
        ),
    )


async def test_hostile_names_are_escaped_in_every_view() -> None:
    screen = Screen(hostile(), output=(EVIL * 9).encode("utf-8", "replace"), tenants=hostile_tenants())
    async with screen.run_test(size=(160, 40)) as pilot:
        await settled(pilot)
        for keys in (
            ("1",),
            ("2",),
            ("2", "enter"),
            ("3",),
            ("1", "enter"),
            ("1", "C"),
            ("escape", "question_mark"),
            ("4",),
            ("4", "E"),
            ("5",),
            ("5", "E"),
            ("5", "U"),
            ("6",),
            ("6", "C"),
            ("7",),
            ("7", "A"),
            ("2", "D"),
        ):
            await press(pilot, *keys[:1])
            await until(pilot, lambda: "asking" not in screen.text())
            await press(pilot, *keys[1:])
            await pilot.pause()
            text = screen.text()
            assert not [
                letter for letter in text.replace("\n", "") if ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0
            ]
            assert not set(text) & set("\u202e\ufeff\ud800")
            await press(pilot, "escape")
        await press(pilot, "1", "y")
        assert "\x1b" not in "".join(screen.menus.commands())


async def test_three_hundred_random_resizes() -> None:
    dice = random.Random(11)
    screen = Screen(output=LOG.encode())
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        places = [
            "1",
            "2",
            "4",
            "5",
            "7",
            "question_mark",
            "escape",
            "N",
            "escape",
            "G",
            "2",
            "enter",
        ]
        for number in range(300):
            if number % 25 == 0:
                await press(pilot, places[number // 25])
            width, height = dice.choice((1, 7, 20, 40, 60, 80, 133, 250)), dice.choice((1, 2, 5, 14, 24, 70))
            screen.post_message(Resize(Size(width, height), Size(width, height)))
            await pilot.pause(0.002)
            assert screen.size == (width, height)
        await pilot.resize_terminal(80, 24)
        await press(pilot, "escape", "escape", "1")
        assert "GPUs" in screen.text()


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 50)])
async def test_every_line_of_the_frame_is_drawn(size: tuple[int, int]) -> None:
    screen = Screen()
    async with screen.run_test(size=size) as pilot:
        await settled(pilot)
        lines = screen.text().splitlines()
        assert len(lines) == size[1]
        assert lines[0].startswith(" corral demo")
        assert lines[0].rstrip().endswith("● live")
        assert "1 Queue   2 Nodes   3 Events" in lines[1]
        assert "q quit" in lines[-1]


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
