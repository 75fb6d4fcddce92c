"""Presets and drafts: what the user saves and picks, and forms that were closed unsent."""

from __future__ import annotations

from textual.widgets import Input

from tests.tui.screens import Screen, press, settled, until
from tui.changes.preset_menus import show_preset
from tui.data.drafts import MOST, Drafts
from tui.data.presets import Preset
from tui.dialogs.form_dialog import FormDialog
from tui.dialogs.menu import Menu
from tui.views.plan import PlanView


class Saving(Screen):
    """Counts the calls that write the settings."""

    saves = 0

    def on_mount(self) -> None:
        super().on_mount()

        def save() -> None:
            self.saves += 1

        self.save_settings = save


def head(screen: Screen) -> str:
    return screen.text().split("\n")[2]


async def test_view_filter_and_columns_are_saved_and_shown_again() -> None:
    screen = Saving()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        assert "USER" in head(screen)
        await press(pilot, "slash", *"user:bob", "enter")
        await press(pilot, "c")
        assert isinstance(screen.screen, Menu)
        await press(pilot, "j", "enter")
        await until(pilot, lambda: isinstance(screen.screen, Menu) and "hidden" in screen.text())
        await press(pilot, "escape")
        assert "USER" not in head(screen)
        await press(pilot, "m", *"bobs", "enter")
        assert screen.presets == {"bobs": Preset("queue", "user:bob", "order", False, ("user",))}
        assert screen.saves == 1
        await press(pilot, "escape", "c", "j", "enter", "escape", "2")
        await press(pilot, "b", "enter")
        await until(pilot, lambda: screen.view is screen.queue_view)
        assert screen.view.filter_text == "user:bob"
        assert "USER" not in head(screen)


async def test_menu_of_commands_shows_presets_and_one_can_be_deleted() -> None:
    screen = Saving()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "b")
        await until(pilot, lambda: "no presets" in screen.text())
        screen.presets["large"] = Preset("plan", "gpus:>=8")
        await press(pilot, "colon", *"large")
        assert "preset large" in screen.text()
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(screen.view, PlanView))
        assert screen.view.filter_text == "gpus:>=8"
        await press(pilot, "b", "j", "enter", "enter")
        await until(pilot, lambda: not screen.presets)
        assert screen.saves == 1


async def test_preset_of_another_version_shows_what_is_valid() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        screen.presets["old"] = Preset("queue", "user:(", "gone", False, ("gone", "user"))
        show_preset(screen, "old")
        assert screen.view.filter_text == ""
        assert screen.queue_view.table.hidden == {"user"}
        assert screen.queue_view.listing.sort == "order"


async def test_form_that_was_closed_unsent_is_offered_again_until_it_is_sent() -> None:
    screen = Screen()
    async with screen.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await press(pilot, "N")
        await until(pilot, lambda: isinstance(screen.screen, FormDialog))
        assert "draft" not in screen.text()
        await press(pilot, *"echo", "escape", "N")
        await until(pilot, lambda: "^r draft of 10:40:00" in screen.text())
        first = screen.screen.query(Input).first()
        assert first.value != "echo"
        await press(pilot, "ctrl+r")
        assert first.value == "echo"
        await press(pilot, "ctrl+s")
        await until(pilot, lambda: screen.ordered)
        await until(pilot, lambda: not isinstance(screen.screen, FormDialog))
        await press(pilot, "N")
        await until(pilot, lambda: isinstance(screen.screen, FormDialog))
        assert "draft" not in screen.text()


def test_drafts_are_bounded_and_unchanged_forms_leave_none() -> None:
    drafts = Drafts()
    drafts.keep("form", {"a": "1"}, {"a": "1"}, 1.0)
    assert drafts.get("form") is None
    for number in range(MOST + 5):
        drafts.keep(f"form {number}", {"a": "2"}, {"a": "1"}, 1.0)
    assert drafts.get("form 4") is None
    assert drafts.get("form 5") is not None
    drafts.drop("form 5")
    assert drafts.get("form 5") is None
