"""Menus that save, show and delete presets, and the menu that chooses the columns of a list."""

from __future__ import annotations

from tui.app_interface import AppInterface
from tui.data.presets import Preset
from tui.dialogs.menu import Menu, MenuEntry
from tui.views.list_view import ListView
from wire.text import printable

DELETE = "\n"
"""The name of the menu entry that deletes a preset. No preset has this name, because a name is one line."""


class PresetMenus:
    def __init__(self, app: AppInterface) -> None:
        self._app = app

    def save_preset(self) -> None:
        """Let the user type a name, and save the view with its filter, sort order and columns as a preset."""

        def typed(name: str) -> None:
            name = name.strip()
            if not name:
                return
            app = self._app
            word = "changed" if name in app.presets else "saved"
            app.presets[name] = Preset.of(app.view)
            app.save_settings()
            app.show_message(f"preset {printable(name, 60)} {word}", "good")

        self._app.ask_text("name of the preset", typed)

    def presets(self) -> None:
        """Open the menu of presets. Enter shows the view of a preset."""
        app = self._app
        if not app.presets:
            app.show_message("no presets: m saves the view, its filter and its columns as a preset", "warn")
            return
        entries = [*preset_entries(app), MenuEntry(DELETE, "delete a preset…")]
        app.push_screen(Menu("Presets", entries), self._picked)

    def _picked(self, name: str | None) -> None:
        if name == DELETE:
            self._app.push_screen(Menu("Delete a preset", preset_entries(self._app)), self._delete)
        elif name is not None:
            show_preset(self._app, name)

    def _delete(self, name: str | None) -> None:
        if name is not None and self._app.presets.pop(name, None) is not None:
            self._app.save_settings()
            self._app.show_message(f"preset {printable(name, 60)} deleted", "good")

    def columns(self, at: str = "") -> None:
        """Open the menu of the columns of the list. Enter shows or hides a column, and opens the menu again;
        Escape closes the menu.
        """
        view = self._app.view
        if not isinstance(view, ListView):
            return
        table = view.table
        entries = [
            MenuEntry(name, title, "hidden" if name in table.hidden else "shown if there is room")
            for name, title in table.column_titles()
        ]

        def picked(name: str | None) -> None:
            if name is not None:
                table.hide(table.hidden ^ {name})
                self.columns(name)

        self._app.push_screen(Menu("Columns", entries, at=at), picked)


def preset_entries(app: AppInterface) -> list[MenuEntry]:
    """Return a menu entry for each preset, ordered by name."""
    return [
        MenuEntry(name, printable(name, 40), preset.summary) for name, preset in sorted(app.presets.items())
    ]


def show_preset(app: AppInterface, name: str) -> None:
    """Show the view of a preset with the filter, the sort order and the columns of the preset."""
    preset = app.presets[name]
    app.act(preset.view)
    if preset.view == app.view.NAME:
        preset.apply(app.view)
        app.refresh_lines()
