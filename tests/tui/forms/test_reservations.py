"""Nodes that are kept: the list, making and cancelling, and the form as plain data."""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime

import pytest

from cli.commands.policy.reserve import ReservationFlags
from tests.cli.flag_groups import parsed
from tests.tui.recorded import NOW, Tenants
from tests.tui.screens import Screen, press, settled, until
from tui.dialogs.confirm import ConfirmDialog
from tui.dialogs.form_dialog import FormDialog
from tui.forms import reservation as form
from wire.amounts import moment
from wire.cluster.reservation import ReservationSpec


async def test_reservation_view_shows_current_and_future_reservations() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until(pilot, lambda: "fans" in screen.text())
        lines = screen.text().splitlines()
        assert lines[3].split()[1:4] == ["demo", "●", "on"]
        assert lines[4].rstrip().endswith("──━━━━" + "─" * 18)
        assert "maintenance" in lines[5]
        assert "for 1h00m more" in screen.text()
        await press(pilot, "j")
        assert "in 2h00m, again every 7d00h" in screen.text()
        assert "project ai, project vision" in screen.text()
        await press(pilot, "enter")
        await until(pilot, lambda: screen.view.NAME == "node")
        assert "node-2" in screen.text()


async def test_reservation_form_makes_a_reservation() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "6", "N")
        assert isinstance(screen.screen, FormDialog)
        await press(pilot, "ctrl+s")
        assert "name: must be printable" in screen.text()
        await press(pilot, *"upgrade", "ctrl+s")
        assert "nodes: name nodes, or give a number of nodes" in screen.text()
        await press(pilot, "tab", "2", *["tab"] * 6, *"2h")
        assert "corral reserve create upgrade --count 2 --for 2h" in screen.text()
        await until(pilot, lambda: "1 starts later" in screen.text())
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "reservation upgrade: 1 node reserved" in screen.text())
        assert screen.ordered == [("reserve", (ReservationSpec("upgrade", NOW, 7200.0, count=2), False))]


async def test_reservation_over_running_jobs_is_refused_unless_forced() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "6", "N", *"fans", "tab", *"node-1", *["tab"] * 7, *"2h", "ctrl+s")
        await until(pilot, lambda: "Take a later time or other nodes, or reserve anyway" in screen.text())
        assert screen.screen.focused is not None
        assert screen.screen.focused.name == "nodes"
        await press(pilot, *["tab"] * 10, *"yes")
        assert "--anyway" in screen.text()
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("reserve", (ReservationSpec("fans", NOW, 7200.0, ("node-1",)), True))]


async def test_cancel_of_a_reservation_asks_first() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until(pilot, lambda: "fans" in screen.text())
        await press(pilot, "j", "C")
        assert isinstance(screen.screen, ConfirmDialog)
        assert "it begins in 2h00m, and again every 7d00h" in screen.text()
        await press(pilot, "enter")
        assert screen.ordered == []
        await press(pilot, "C", "right", "enter")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("cancel reservation", "course")]
        assert "corral reserve cancel course" in screen.menus.commands()


async def test_empty_reservation_view_shows_how_to_make_one() -> None:
    screen = Screen(tenants=Tenants(reservations=()))
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until(pilot, lambda: "no reservations; N makes one" in screen.text())
        await press(pilot, "C")
        assert "no reservation under the cursor" in screen.text()


def spoken(command: str) -> ReservationSpec:
    """The reservation that the command line parses from a command."""
    return parsed(ReservationFlags, *shlex.split(command)[3:]).spec()


@pytest.mark.parametrize(
    "typed",
    [
        {"name": "a b", "nodes": "gpu01 'gpu 02'", "for": "1d2h30m", "why": "it's hot"},
        {"name": "a", "or gpus": "16", "among": "rack=r1 net=ib", "users": "ada bob", "for": "90s"},
        {
            "name": "a",
            "or nodes": "2",
            "projects": "ai",
            "start": "2030-05-01T08:00",
            "for": "4h",
            "again every": "7d",
        },
    ],
)
def test_shown_command_makes_the_same_reservation(typed: dict[str, str]) -> None:
    typed = {"start": "2031-01-01", **typed}
    shown = form.new(time.time)
    read = shown.read(typed)
    assert read.wrong == {}
    assert read.request == form.ReservationRequest(spoken(shown.command(typed)))


def test_time_of_day_is_its_next_occurrence() -> None:
    at = datetime.fromtimestamp(moment("10:40", NOW), UTC)
    assert (at.day, at.hour, at.minute) == (19, 10, 40)  # NOW is the 18th, 10:40


def test_every_field_reports_its_mistake() -> None:
    typed = {
        "name": "a/b",
        "nodes": "'open",
        "or nodes": "x",
        "among": "rack",
        "start": "soon",
        "for": "2",
        "again every": "1",
        "anyway": "perhaps",
    }
    assert form.new(lambda: NOW).read(typed).wrong.keys() == typed.keys()
    assert form.new(lambda: NOW).read({"name": "a", "for": "2h"}).wrong.keys() == {"nodes"}
    assert form.new(lambda: NOW).read({"name": "a", "or nodes": "1"}).wrong == {"for": "write the length: 4h"}
