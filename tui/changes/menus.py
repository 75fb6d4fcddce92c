"""Actions that open a menu above a view: command menu, commands to copy, themes, and the help."""

from __future__ import annotations

from dataclasses import replace

from tui.actions import actions_of, keys_of, shown_key, words_of
from tui.app_interface import AppInterface
from tui.changes.confirmations import job_command
from tui.changes.preset_menus import preset_entries, show_preset
from tui.dialogs.form_dialog import FormDialog
from tui.dialogs.help import HelpDialog, help_lines
from tui.dialogs.menu import Menu, MenuEntry
from tui.forms.more_nodes import more_nodes
from tui.look.theme import SIXTEEN, THEMES
from tui.views.list_view import ListView
from wire.text import duration, printable

PRESET = "preset "
"""The begin of the names of menu entries that show a preset."""


class Menus:
    def __init__(self, app: AppInterface) -> None:
        self._app = app

    def palette(self) -> None:
        """Open the menu with all actions of the view. If the user types a number, the menu offers to open the
        job with this id. The menu also has the presets.
        """
        app = self._app
        entries = [
            MenuEntry(
                action.name,
                action.title,
                action.help,
                "".join(map(shown_key, keys_of(action, app.view.NAME)[:1])),
                app.allowed(action),
            )
            for action in actions_of(app.view.NAME, app.read_only)
            if action.name != "palette"
        ]
        entries += [
            replace(entry, name=f"{PRESET}{entry.name}", title=f"preset {entry.title}")
            for entry in preset_entries(app)
        ]

        def job(text: str) -> MenuEntry | None:
            return (
                MenuEntry(f"#{text}", f"job {text}", "open it") if text.isascii() and text.isdigit() else None
            )

        def picked(name: str | None) -> None:
            if name and name.startswith("#"):
                app.open_job(int(name[1:19]))
            elif name and name.startswith(PRESET):
                show_preset(app, name.removeprefix(PRESET))
            elif name:
                app.act(name)

        app.push_screen(Menu("Commands", entries, search=True, extra=job), picked)

    def what_if(self) -> None:
        """Open the menu of changes whose effect the plan can show. Each entry opens the dialog of a change.
        The dialog can also make the change, except for the entry with more nodes.
        """
        app = self._app
        jobs, nodes = app.view.jobs(), app.view.nodes()
        entries = [MenuEntry("submit", "submit a job", "with a form")]
        if jobs:
            label = printable(jobs[0].label)
            entries += [
                MenuEntry("edit_job", f"change job {label}", "priority, time limit, queue, begin time"),
                MenuEntry("cancel", f"cancel job {label}"),
                MenuEntry("preempt", f"preempt job {label}"),
            ]
        if nodes:
            name = printable(nodes[0].name, 24)
            entries += [
                MenuEntry("drain", f"drain {name}"),
                MenuEntry("drain_by", f"drain {name} by a time"),
                MenuEntry("more_nodes", f"more nodes like {name}"),
            ]
        entries += [
            MenuEntry("new_reservation", "reserve nodes", "for users, projects or maintenance"),
            MenuEntry("edit_share", "change a share", "its weight and its limits"),
            MenuEntry("edit_quota", "change a quota", "of a user, a project or a queue"),
        ]

        def picked(name: str | None) -> None:
            if name == "more_nodes":
                app.push_screen(FormDialog(more_nodes(nodes[0].name), lambda _: None))
            elif name is not None:
                app.try_change(name)

        app.push_screen(Menu("What if…", entries), picked)

    def alarms(self) -> None:
        """Open the menu of all alarms. Enter opens the job, the node or the list of jobs that an
        alarm names.
        """
        app, now = self._app, self._app.model.now()
        found = list(app.model.alarms)
        if not found:
            app.show_message("no alarms: nothing needs attention", "good")
            return
        entries = [
            MenuEntry(
                str(number),
                alarm.text,
                "" if alarm.since is None else f"for {duration(max(0.0, now - alarm.since))}",
            )
            for number, alarm in enumerate(found)
        ]
        menu = Menu(f"Alarms: {len(found)}", entries)
        app.push_screen(menu, lambda picked: app.open_jump(found[int(picked)].jump) if picked else None)

    def help(self) -> None:
        view = self._app.view
        fields = list(view.listing.fields) if isinstance(view, ListView) else []
        self._app.push_screen(HelpDialog(view.NAME, help_lines(view.NAME, self._app.read_only, fields)))

    def theme(self) -> None:
        """Open the menu of themes. When the cursor moves to a theme, the screen shows this theme at once."""
        app = self._app
        before = app.theme
        if before == SIXTEEN.colours.name:
            app.show_message("this terminal has 16 colours: there is no other theme", "warn")
            return
        entries = [MenuEntry(name, look.title) for name, look in THEMES.items() if look is not SIXTEEN]
        menu = Menu("Colours", entries, at=before, on_step=app.use_theme)
        app.push_screen(menu, lambda name: app.use_theme(name or before))

    def copy(self) -> None:
        """Open the menu of shell commands that the user can copy to the clipboard."""
        app = self._app
        entries = [MenuEntry(command, command) for command in self.commands()]
        menu = Menu("Copy as a command", entries)
        app.push_screen(menu, lambda text: app.copy(text) if text else None)

    def commands(self) -> list[str]:
        """Return the shell commands for the menu from which the user copies a command: first the commands
        that the view suggests; then, if only one job is chosen, commands that show this job; then commands
        with the same effect as an action of the view.
        """
        view = self._app.view
        jobs, nodes = view.jobs(), " ".join(printable(node.name) for node in view.nodes())
        subjects = view.subjects()
        found = view.advised()
        found += [job_command("show", jobs), f"{job_command('logs', jobs)} -f"] if len(jobs) == 1 else []
        for action in actions_of(view.NAME, self._app.read_only):
            command = action.command
            if "{jobs}" in command and jobs and "…" not in command:
                found.append(job_command(action.name, jobs))
            elif "{nodes}" in command and nodes:
                found.append(command.format(nodes=nodes, why="'…'", time="2h"))
            elif (words := words_of(command)) and words <= subjects.keys():
                found.append(command.format(**subjects))
            elif command and "{" not in command and "…" not in command:
                found.append(command)
        return found
