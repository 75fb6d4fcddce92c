"""Which commands there are. A module is imported when its command runs, so that starting stays fast."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command as command_of

from cli.reading import lighten

COMMANDS: Mapping[str, tuple[str, str]] = {
    "submit": ("cli.submit", "Queue a job: a command, a script, or an array of them."),
    "run": ("cli.run", "Submit a job, show its output live, and exit with its code."),
    "queue": ("cli.queue", "Show the jobs that wait and run."),
    "job": ("cli.job", "Show, follow, change, cancel, hold, release, preempt or wait for jobs."),
    "exec": ("cli.exec", "Run a command where a job runs, within its limits."),
    "attach": ("cli.attach", "Open a shell where a job runs."),
    "explain": ("cli.explain", "Tell why a job waits, and when it starts at the latest."),
    "what-if": ("cli.what_if", "Ask who would start sooner or later, before doing it."),
    "nodes": ("cli.nodes", "Show nodes and their GPUs; add, drain and remove them."),
    "gpus": ("cli.gpus", "Show all GPUs: health, use, and who is on them."),
    "profiles": ("cli.profiles", "Show the schedulers side by side: for which jobs, where, and how."),
    "quota": ("cli.quota", "Show, set and unset quotas of users, projects and queues."),
    "shares": ("cli.shares", "Show who may have how much and who had it; change weights."),
    "licences": ("cli.licences", "Show licences: how many there are, and who holds them."),
    "reserve": ("cli.reserve", "Keep nodes for a time: for users, projects or maintenance."),
    "rebalance": ("cli.rebalance", "Show which running jobs could be moved, and what for; move them."),
    "usage": ("cli.usage", "Show GPU-hours, how well they were used, and their energy."),
    "report": ("cli.report", "Show how good estimates have been."),
    "events": ("cli.events", "Show what happened; follow what happens."),
    "sim": ("cli.sim", "Run the scheduler in virtual time: logs, policies, other clusters."),
    "tui": ("cli.tui", "Open the terminal UI."),
    "demo": ("cli.demo", "See a cluster of four simulated 8-GPU hosts at work."),
    "controller": ("cli.controller", "Run the controller in the foreground."),
    "config": ("cli.config", "Check a configuration file."),
    "version": ("cli.version", "Show the version of this program and of the controller."),
}


class Front(TyperGroup):
    """The root group: knows all names, loads only what is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, summary = COMMANDS[cmd_name]
            command = lighten(command_of(importlib.import_module(module).app))
            command.short_help = summary
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


class Group(TyperGroup):
    """A group that gives each of its commands a whole sentence, wrapped and never cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]
            )


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?]) ", paragraph, maxsplit=1)[0]


def nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """' Did you mean …?', or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def application(help_text: str = "", **settings: Any) -> typer.Typer:
    """A Typer with the manners of this program."""
    if help_text:
        settings["help"] = help_text  # else it is what the callback says about itself
    return typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
        **settings,
    )


def examples(*lines: str) -> str:
    """The examples at the end of a command's help, kept as written."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


SETTINGS = {"help_option_names": ["-h", "--help"]}
