"""Snapshots of the screen at common widths. `pytest --snapshot-update` accepts changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.tui.recorded import NOW, Tenants, everything
from tests.tui.screens import Screen, press, settled, until
from tests.tui.test_app import LOG
from tests.tui.test_hostile_names import hostile
from tests.tui.test_pulse import pulse
from tui.data.cluster_feed import Changes, ConnectionStatus
from tui.widgets.job_peek import JobPeek

Compare = Callable[..., bool]
SIZES = [(60, 20), (80, 24), (120, 30), (200, 20)]
WIDTHS = pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))


def after(*keys: str, sign: str = "", first: str = "") -> Callable[[Pilot[Any]], Any]:
    """Press keys once everything is drawn, then wait for the text `sign`."""

    async def run(pilot: Pilot[Any]) -> None:
        screen = pilot.app
        assert isinstance(screen, Screen)
        await settled(pilot)
        await press(pilot, *keys[:1])
        await until(pilot, lambda: first in screen.text())
        await press(pilot, *keys[1:])
        await until(pilot, lambda: sign in screen.text())
        loads = getattr(screen.view, "_loads", None)
        await until(pilot, lambda: loads is None or not loads.missing)
        await until(pilot, lambda: not any(peek.display and peek.asks for peek in screen.query(JobPeek)))
        for field in screen.screen.query(Input):
            # Because a blinking cursor is in the picture at some times only.
            field.cursor_blink = False
        await pilot.pause()

    return run


@WIDTHS
def test_queue(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("j", "space"))


@pytest.mark.parametrize("size", [(60, 50), (80, 24), (120, 40), (200, 60)], ids=lambda size: str(size[0]))
def test_pulse(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(
        pulse(), terminal_size=size, run_before=after("j", sign="just now" if size[1] > 24 else "alarms")
    )


def test_pulse_in_ascii(snap_compare: Compare) -> None:
    screen = pulse(look="terminal", ascii_only=True)
    assert snap_compare(screen, terminal_size=(120, 40), run_before=after(sign="~ 10m00s"))


@WIDTHS
def test_plan(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("8", sign="free GPUs"))


@WIDTHS
def test_calendar(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = after("6", "c", "l", "j", first="BEGINS", sign="course")
    assert snap_compare(Screen(), terminal_size=size, run_before=run)


@WIDTHS
def test_nodes(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("2", "j", "j"))


@WIDTHS
def test_waiting_job(snap_compare: Compare, size: tuple[int, int]) -> None:
    keys = ("colon", "1", "0", "enter")
    assert snap_compare(Screen(), terminal_size=size, run_before=after(*keys, sign="no two nodes"))


def test_running_job(snap_compare: Compare) -> None:
    screen = Screen(output=LOG.encode())
    assert snap_compare(screen, terminal_size=(120, 30), run_before=after("enter", sign="261 lines"))


def test_events(snap_compare: Compare) -> None:
    assert snap_compare(Screen(), terminal_size=(100, 24), run_before=after("3"))


@WIDTHS
def test_shares(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("4", *"jjjj", first="alice"))


@WIDTHS
def test_quotas(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("5", *"jjj", first="alice"))


@pytest.mark.parametrize(
    ("keys", "first", "sign"),
    [
        (("4", *"jjjj"), "alice", "GPU-hours by project"),
        (("6", "c", "j", "j"), "BEGINS", "jobs that may run into"),
        (("2", "j"), "node-1", "jobs on node-2"),
    ],
    ids=("shares", "calendar", "nodes"),
)
def test_large_screens(snap_compare: Compare, keys: tuple[str, ...], first: str, sign: str) -> None:
    """The free space below short lists has panels."""
    assert snap_compare(Screen(), terminal_size=(200, 60), run_before=after(*keys, first=first, sign=sign))


def test_attempts(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[Any]) -> None:
        await after("colon", "1", "0", "enter", sign="no two nodes")(pilot)
        await after("tab", sign="time since the submit")(pilot)

    assert snap_compare(Screen(), terminal_size=(200, 60), run_before=run)


def test_quota_form(snap_compare: Compare) -> None:
    keys = ("5", *"jjj", "E", *"000", "tab", "x")
    assert snap_compare(
        Screen(), terminal_size=(80, 24), run_before=after(*keys, first="alice", sign="write 8")
    )


@WIDTHS
def test_reservations(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("6", "j", first="fans"))


def test_reservation_form(snap_compare: Compare) -> None:
    keys = ("6", "N", *"upgrade", "tab", "tab", "2", *["tab"] * 6, *"2h")
    assert snap_compare(Screen(), terminal_size=(80, 24), run_before=after(*keys, sign="1 starts later"))


def test_reservation_cancel_question(snap_compare: Compare) -> None:
    keys = ("6", "j", "C")
    screen = Screen()
    assert snap_compare(
        screen, terminal_size=(80, 24), run_before=after(*keys, first="fans", sign="1 starts later")
    )


@WIDTHS
def test_rebalance(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(), terminal_size=size, run_before=after("7", "j", first="proposed"))


def test_move_question(snap_compare: Compare) -> None:
    assert snap_compare(Screen(), terminal_size=(80, 24), run_before=after("7", "A", first="proposed"))


def test_no_reservations(snap_compare: Compare) -> None:
    screen = Screen(tenants=Tenants(reservations=()))
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("6", sign="makes one"))


def test_no_shares(snap_compare: Compare) -> None:
    screen = Screen(tenants=Tenants(shares=()))
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("4", sign="no job was submitted"))


def test_share_form(snap_compare: Compare) -> None:
    keys = ("4", "j", "j", "E", "backspace", "3")
    assert snap_compare(
        Screen(), terminal_size=(80, 24), run_before=after(*keys, first="alice", sign="1 starts later")
    )


@WIDTHS
def test_disconnected(snap_compare: Compare, size: tuple[int, int]) -> None:
    lost = Changes(ConnectionStatus("lost", NOW - 12, "no program listens there"))
    screen = Screen(everything(), replace(lost))
    assert snap_compare(screen, terminal_size=size, run_before=after(sign="stale"))


@WIDTHS
def test_hostile_names(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(Screen(hostile()), terminal_size=size, run_before=after())


def test_question(snap_compare: Compare) -> None:
    keys = ("space", "j", "space", "space", "C")
    assert snap_compare(Screen(), terminal_size=(80, 24), run_before=after(*keys, sign="1 starts later"))


def test_submit(snap_compare: Compare) -> None:
    keys = ("N", *"python", "space", *"train.py", "tab", "tab", "x")
    assert snap_compare(Screen(), terminal_size=(80, 24), run_before=after(*keys))


def test_palette(snap_compare: Compare) -> None:
    assert snap_compare(Screen(), terminal_size=(80, 24), run_before=after("colon", *"dra"))


def test_help(snap_compare: Compare) -> None:
    assert snap_compare(Screen(), terminal_size=(100, 40), run_before=after("question_mark"))


def test_filtered_queue(snap_compare: Compare) -> None:
    screen = Screen()
    assert snap_compare(
        screen, terminal_size=(80, 24), run_before=after("slash", *"user:bob", "space", "left_parenthesis")
    )


def test_empty_cluster(snap_compare: Compare) -> None:
    empty = replace(everything(), jobs=(), nodes=(), events=())
    assert snap_compare(Screen(empty), terminal_size=(80, 24), run_before=after())


def test_read_only(snap_compare: Compare) -> None:
    assert snap_compare(Screen(read_only=True), terminal_size=(80, 24), run_before=after())


@pytest.mark.parametrize("look", ["horizon", "dawn", "terminal"])
def test_themes(snap_compare: Compare, look: str) -> None:
    assert snap_compare(Screen(look=look), terminal_size=(80, 24), run_before=after("2", "j"))


def test_no_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(Screen(look="terminal"), terminal_size=(80, 24), run_before=after("j", "space"))


def test_ascii(snap_compare: Compare) -> None:
    screen = Screen(look="terminal", ascii_only=True)
    assert snap_compare(screen, terminal_size=(80, 24), run_before=after("2", "j", "C"))
