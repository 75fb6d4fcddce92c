"""Shares: the tree, and editing it."""

from __future__ import annotations

import pytest
from textual.widgets import Button, Input

from tests.tui.recorded import LIVE, NOW, Tenants, shares
from tests.tui.screens import Screen, press, settled, until
from tui.data.cluster_feed import Changes
from tui.dialogs.form_dialog import FormDialog
from tui.forms import share as form
from wire.api.policy.shares import ShareView, ShareWeight
from wire.api.service.cluster import EventView

ALICE = next(share for share in shares() if share.share == "vision/alice")


async def test_share_tree_is_loaded_when_it_is_shown() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "    alice" in screen.text())
        lines = screen.text().splitlines()
        assert [line.split()[0] for line in lines[3:11]] == [
            *("▌", "speech", "chiara", "vision", "alice", "bob", "nlp", "emeka"),
        ]
        assert "67%" in lines[3]
        await press(pilot, *"jjjj")
        assert "above its soft limit: its jobs come after all others" in screen.text()
        await press(pilot, "G")
        assert "none of its jobs starts for 2h10m at most: hard limit of nlp" in screen.text()


async def test_share_edit_shows_its_effect_and_is_sent() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "    alice" in screen.text())
        await press(pilot, "j", "E")
        assert isinstance(screen.screen, FormDialog)
        assert screen.screen.query_one("#do", Button).disabled
        await press(pilot, "backspace", "3", "tab", *"200")
        assert "corral shares set speech 3 --soft 200" in screen.text()
        await until(pilot, lambda: "1 starts later, 1 starts sooner, 11 as now" in screen.text())
        assert "in 1h30m → in 2h30m" in screen.text()
        assert screen.ordered == []
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: "share of speech set" in screen.text())
        assert screen.ordered == [("share", ShareWeight("speech", 3.0, 200.0))]
        assert not isinstance(screen.screen, FormDialog)


async def test_refused_share_edit_is_reported_at_its_line() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "    alice" in screen.text())
        await press(pilot, "E", *"000", "tab", "tab", "ctrl+s")
        await until(pilot, lambda: "must be above 0 and at most 1,000" in screen.text())
        assert isinstance(screen.screen, FormDialog)
        assert screen.screen.query(Input).first().has_focus
        await press(pilot, "backspace")
        assert "must be above 0" not in screen.text()
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        assert screen.ordered == [("share", ShareWeight("lab", 200.0))]


async def test_share_tree_is_reloaded_when_another_user_changes_it() -> None:
    screen = Screen()
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "    alice" in screen.text())
        screen.model.shares.replace(())
        event = EventView(990, NOW, "ShareSet", "weight of vision set to 3 by bob", None, None)
        screen.recording.put(Changes(LIVE, events=(event,)))
        await until(pilot, lambda: len(screen.model.shares) == len(shares()))


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("", "project:^(speech|vision)$"),
        ("j", "project:^(speech)$"),
        ("jjjj", "project:^(vision)$ user:^(alice)$"),
        ("jjjjjj", "project:^(nlp)$"),
    ],
    ids=["an organisation", "a project of it", "a user", "a project by itself"],
)
async def test_opening_a_share_shows_its_jobs(keys: str, wanted: str) -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "    alice" in screen.text())
        await press(pilot, *keys, "enter")
        assert (screen.view.NAME, screen.model.jobs.filter.text) == ("queue", wanted)
        assert 0 < len(screen.model.jobs) < 40


async def test_empty_share_tree_explains_itself() -> None:
    screen = Screen(tenants=Tenants(shares=()))
    async with screen.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await press(pilot, "4")
        await until(pilot, lambda: "shares appear with the first job" in screen.text())
        await press(pilot, "E", "enter")
        assert (screen.view.NAME, screen.ordered) == ("shares", [])


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"weight": "1", "soft limit": "500"}, None),
        ({"weight": "2", "soft limit": "500"}, ShareWeight("vision/alice", 2.0)),
        ({"weight": "1", "soft limit": ""}, ShareWeight("vision/alice", None, -1)),
        ({"weight": "1", "soft limit": "none", "hard limit": ""}, ShareWeight("vision/alice", None, -1)),
        ({"weight": "1", "soft limit": "500", "hard limit": "9"}, ShareWeight("vision/alice", hard=9.0)),
    ],
)
def test_share_form_sends_only_changes(typed: dict[str, str], expected: ShareWeight | None) -> None:
    read = form.edit(ALICE).read(typed)
    assert (read.request, read.wrong) == (expected, {})


def test_every_field_reports_its_mistake() -> None:
    read = form.edit(ALICE).read({"weight": "heavy", "soft limit": "-1", "hard limit": "9 units"})
    assert read.wrong.keys() == {"weight", "soft limit", "hard limit"}
    assert not read.ready


def test_hostile_name_is_quoted_in_the_command() -> None:
    row = ShareView(("a b\x1b[2J", "x"), "a b\x1b[2J/x", 1.0, 1.0, 0.0, 0.0, 1.0)
    assert form.edit(row).command({"weight": "2"}) == "corral shares set 'a b\ufffd[2J/x' 2"
