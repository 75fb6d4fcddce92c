"""What opens over a view to choose from: everything that can be done, commands to copy, colours, help."""

from __future__ import annotations

from tui.actions import actions_of, shown_key, words_of
from tui.confirm import job_command
from tui.dialogs.help import Help, help_lines
from tui.dialogs.menu import Entry, Menu
from tui.stage import Stage
from tui.theme import LOOKS, SIXTEEN
from tui.views.listed import Listed
from wire.text import plain


class Menus:
    """One method for each action that offers a choice."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def palette(self) -> None:
        """Everything that can be done here, to search; a number opens that job."""
        on_stage = self._stage
        entries = [
            Entry(action.name, action.title, action.help, shown_key(action.keys[0]), on_stage.allowed(action))
            for action in actions_of(on_stage.view.NAME, on_stage.read_only)
            if action.name != "palette"
        ]

        def job(text: str) -> Entry | None:
            return Entry(f"#{text}", f"job {text}", "open it") if text.isascii() and text.isdigit() else None

        def picked(name: str | None) -> None:
            if name and name.startswith("#"):
                on_stage.open_job(int(name[1:19]))
            elif name:
                on_stage.act(name)

        on_stage.push_screen(Menu("Do", entries, search=True, extra=job), picked)

    def help(self) -> None:
        """All keys of the view."""
        view = self._stage.view
        fields = list(view.listing.fields) if isinstance(view, Listed) else []
        self._stage.push_screen(Help(view.NAME, help_lines(view.NAME, self._stage.read_only, fields)))

    def theme(self) -> None:
        """Other colours; they change while one looks."""
        on_stage = self._stage
        before = on_stage.theme
        if before == SIXTEEN.colours.name:
            on_stage.say("this terminal has its own colours", "warn")
            return
        entries = [Entry(name, look.title) for name, look in LOOKS.items() if look is not SIXTEEN]
        menu = Menu("Colours", entries, at=before, on_step=on_stage.wear)
        on_stage.push_screen(menu, lambda name: on_stage.wear(name or before))

    def copy(self) -> None:
        """Choose a command to copy."""
        on_stage = self._stage
        entries = [Entry(command, command) for command in self.commands()]
        menu = Menu("Copy as a command", entries)
        on_stage.push_screen(menu, lambda text: on_stage.copy(text) if text else None)

    def commands(self) -> list[str]:
        """What can be done here, as commands for a shell."""
        view = self._stage.view
        jobs, nodes = view.jobs(), " ".join(plain(node.name) for node in view.nodes())
        subjects = view.subjects()
        found = [job_command("show", jobs), f"{job_command('logs', jobs)} -f"] if len(jobs) == 1 else []
        for action in actions_of(view.NAME, self._stage.read_only):
            command = action.command
            if "{jobs}" in command and jobs:
                found.append(job_command(action.name, jobs))
            elif "{nodes}" in command and nodes:
                found.append(command.format(nodes=nodes, why="'…'"))
            elif (words := words_of(command)) and words <= subjects.keys():
                found.append(command.format(**subjects))
            elif command and "{" not in command and "…" not in command:
                found.append(command)
        return found
