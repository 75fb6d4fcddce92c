"""Every action in the registry has a key, a palette entry, help and a valid command."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from textual.keys import _character_to_key
from typer.main import get_command

from cli.main import app as command_line
from tests.tui.screens import Screen, press, settled, until
from tui.actions import ACTIONS, EVERYWHERE, LOGS, ScreenAction, actions_of, footer_of, keys_of, shown_key
from tui.dialogs.help import help_lines
from tui.dialogs.menu import Menu

OPENING = {
    "pulse": ("0",),
    "queue": (),
    "nodes": ("2",),
    "events": ("3",),
    "shares": ("4",),
    "quotas": ("5",),
    "reservations": ("6",),
    "rebalance": ("7",),
    "plan": ("8",),
    "job": ("enter",),
    "node": ("2", "enter"),
    "calendar": ("6", "c"),
}


@pytest.mark.parametrize("view", sorted(EVERYWHERE))
async def test_every_action_of_a_view_has_a_key(view: str) -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await press(pilot, *OPENING[view])
        await until(pilot, lambda: view == screen.view.NAME and screen.view.pane.has_focus)
        bound = screen.screen.active_bindings
        for action in actions_of(view, read_only=False):
            for key in keys_of(action, view):
                assert bound[key].binding.action == f"app.act('{action.name}')", f"{key} in {view}"
                assert bound[key].enabled


@pytest.mark.parametrize("view", sorted(EVERYWHERE))
async def test_palette_offers_every_action_of_a_view(view: str) -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        await press(pilot, *OPENING[view])
        await until(pilot, lambda: view == screen.view.NAME and screen.view.pane.has_focus)
        await press(pilot, "colon")
        menu = screen.screen
        assert isinstance(menu, Menu)
        offered = {entry.name for entry in menu._choices.entries}
        assert offered == {action.name for action in actions_of(view, read_only=False)} - {"palette"}


@pytest.mark.parametrize("view", sorted(EVERYWHERE))
def test_help_explains_every_action_of_a_view(view: str) -> None:
    text = "\n".join("".join(piece for piece, _ in line) for line in help_lines(view, read_only=False))
    for action in actions_of(view, read_only=False):
        assert action.help in text
        assert " ".join(shown_key(key) for key in keys_of(action, view)) in text


async def test_every_action_has_a_handler() -> None:
    screen = Screen()
    async with screen.run_test() as pilot:
        await settled(pilot)
        for view, keys in OPENING.items():
            await press(pilot, "1", *keys)
            await until(pilot, lambda view=view: view == screen.view.NAME)
            for action in actions_of(view, read_only=False):
                assert screen.method_of(action) is not None, f"{action.name} in {view}"


@pytest.mark.parametrize("view", sorted(EVERYWHERE))
def test_no_key_has_two_actions(view: str) -> None:
    keys = Counter(key for action in actions_of(view, read_only=False) for key in keys_of(action, view))
    assert max(keys.values()) == 1


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_only_capital_letters_change_something(action: ScreenAction) -> None:
    letters = [key for key in action.keys if len(key) == 1 and key.isalpha()]
    if action.changes:
        assert letters
        assert all(key.isupper() for key in action.keys)
    else:
        assert all(key.islower() or key == "G" or (key == "N" and action.views == LOGS) for key in letters)
    assert all(key == (_character_to_key(key) if len(key) == 1 else key) for key in action.keys)


@pytest.mark.parametrize("view", sorted(EVERYWHERE))
def test_read_only_hides_changing_actions(view: str) -> None:
    assert not any(action.changes for action in actions_of(view, read_only=True))
    assert not any(action.changes for action in footer_of(view, read_only=True))
    assert len(actions_of(view, read_only=True)) > 10


@pytest.mark.parametrize("action", [one for one in ACTIONS if one.command], ids=lambda one: one.name)
def test_command_of_each_action_exists(action: ScreenAction) -> None:
    corral, *words = action.command.split()
    assert corral == "corral"
    command = get_command(command_line)
    for word in words:
        below = getattr(command, "get_command", None)
        if below is not None and re.fullmatch(r"[a-z]+", word):
            command = below(None, word)
            assert command is not None, action.command
        elif word.startswith("-"):
            assert any(word in option.opts for option in command.params), action.command
