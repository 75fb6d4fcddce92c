"""Lists all commands. The module of a command is imported only when the command runs, so that every command
starts fast.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command as command_of

from cli.flag_values import use_fast_readers

COMMANDS: Mapping[str, tuple[str, str]] = {
    "submit": ("cli.commands.submit", "Queue a job: a command, a script, or an array of jobs."),
    "run": ("cli.commands.run", "Submit a job, show its output live, and exit with the job's exit code."),
    "queue": ("cli.commands.queue", "List waiting and running jobs."),
    "job": (
        "cli.commands.job",
        "Show, follow, change, cancel, hold, release, requeue, preempt or wait for jobs.",
    ),
    "logs": ("cli.commands.logs", "Show the output of a job: short for 'corral job logs'."),
    "cancel": ("cli.commands.job:cancel_app", "Cancel jobs: short for 'corral job cancel'."),
    "exec": ("cli.commands.exec", "Run a command inside a running job, within the limits of the job."),
    "attach": ("cli.commands.exec:attach_app", "Open a shell inside a running job."),
    "ps": ("cli.commands.queue", "List waiting and running jobs: short for 'corral queue'."),
    "why": ("cli.commands.explain", "Show why a job waits: short for 'corral explain'."),
    "explain": ("cli.commands.explain", "Show why a job waits, and when it starts at the latest."),
    "what-if": ("cli.commands.what_if", "Show which jobs would start sooner or later after a change."),
    "plan": ("cli.commands.plan", "Show when and where the scheduler expects jobs to run."),
    "nodes": ("cli.commands.nodes.nodes", "Show nodes and their GPUs; add, drain and remove nodes."),
    "maintain": (
        "cli.commands.nodes.maintain",
        "Take nodes out of service for maintenance, test them, and bring them back.",
    ),
    "engines": (
        "cli.commands.nodes.engines",
        "Show execution engines (Slurm, Docker and others); test, drain and resume them.",
    ),
    "gpus": ("cli.commands.nodes.gpus", "Show all GPUs: health, load, processes and jobs."),
    "profiles": (
        "cli.commands.policy.profiles",
        "Show scheduler profiles: the jobs, nodes and scheduling policy of each.",
    ),
    "queues": ("cli.commands.policy.queues", "Show queues: the policy and the usage of each."),
    "projects": (
        "cli.commands.policy.projects",
        "Show projects: members, weight, share, quota and budget of each.",
    ),
    "quota": ("cli.commands.policy.quota", "Show, set and unset quotas of users, projects and queues."),
    "shares": (
        "cli.commands.policy.shares",
        "Show fair shares: weights, limits and past usage; change them.",
    ),
    "licences": ("cli.commands.policy.licences", "Show licences: how many exist, and which jobs hold them."),
    "service": (
        "cli.commands.policy.services",
        "Show services and their replicas; restart a service, or change its number of replicas.",
    ),
    "reserve": (
        "cli.commands.policy.reserve",
        "Reserve nodes for a time: for users, projects or maintenance.",
    ),
    "rebalance": (
        "cli.commands.policy.rebalance",
        "Show which running jobs could move to other nodes, and why; move them.",
    ),
    "usage": (
        "cli.commands.reports.usage",
        "Show GPU-hours, GPU load, energy and money by user, project, queue or job.",
    ),
    "report": (
        "cli.commands.reports.report",
        "Show what was used and what it cost, how long jobs waited, why GPUs were idle, and how fair the "
        "cluster was.",
    ),
    "events": (
        "cli.commands.reports.events",
        "Show past events of the cluster, or new events as they happen.",
    ),
    "notify": (
        "cli.commands.service.notify",
        "Show notifications, try sinks, and choose which notices are sent to you.",
    ),
    "workload": (
        "cli.commands.workload",
        "Submit a file of tasks with dependencies; show, wait for, cancel and retry workloads.",
    ),
    "slurm": ("cli.commands.slurm", "Commands of Slurm (sbatch, squeue and others), with Slurm's options."),
    "sim": (
        "cli.commands.sim.sim",
        "Simulate the scheduler: run job logs under other policies or on other clusters.",
    ),
    "tui": ("cli.commands.service.tui", "Open the terminal UI."),
    "web": ("cli.commands.service.web", "Open the terminal UI in web browsers of this machine."),
    "mcp": ("cli.commands.service.mcp", "Serve the cluster to language models (Model Context Protocol)."),
    "demo": ("cli.demo.demo", "Run a demo cluster of four simulated 8-GPU hosts."),
    "admin": (
        "cli.commands.service.admin",
        "Verify, back up, restore and compact the controller's database.",
    ),
    "whoami": ("cli.commands.access.whoami", "Show your user, your role and the limits of your token."),
    "login": ("cli.commands.access.login", "Log in with the identity provider of the site."),
    "logout": ("cli.commands.access.login:logout_app", "End the session of 'corral login'."),
    "token": ("cli.commands.access.token", "Create, list and revoke API tokens."),
    "controllers": (
        "cli.commands.service.controllers",
        "Show the controllers of the cluster and the leader.",
    ),
    "controller": ("cli.commands.service.controller", "Run the controller in the foreground."),
    "doctor": (
        "cli.commands.service.doctor",
        "Check the whole site: controller, configuration, store, nodes, engines; say what to correct.",
    ),
    "config": (
        "cli.commands.service.config",
        "Check, show, explain, compare and apply configurations; save addresses of controllers.",
    ),
    "version": ("cli.commands.service.version", "Show the version of this program and of the controller."),
}
"""For each command name: where the command is, and its summary for the help. `MODULE` means the attribute
`app` of the module; `MODULE:NAME` means the attribute NAME.
"""


OTHER_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("sbatch", "create", "apply"), "submit"),
    **dict.fromkeys(("srun", "salloc"), "run"),
    **dict.fromkeys(("squeue", "get", "list", "ls", "status", "jobs", "sacct"), "queue"),
    **dict.fromkeys(("scancel", "kill", "delete", "stop"), "cancel"),
    **dict.fromkeys(("describe", "show", "scontrol"), "job show"),
    **{verb: f"job {verb}" for verb in ("hold", "release", "requeue", "preempt", "set", "signal", "wait")},
    **{verb: f"nodes {verb}" for verb in ("drain", "resume", "cordon", "add", "label", "taint")},
    **dict.fromkeys(("sinfo", "node"), "nodes"),
    **dict.fromkeys(("top", "nvidia-smi"), "gpus"),
    **dict.fromkeys(("backup", "restore", "verify"), "admin"),
}
"""Words of Slurm, kubectl and shells that users may type by mistake, each with the corresponding corral
command.
"""


class RootGroup(TyperGroup):
    """The command `corral`. Its help lists all commands without importing their modules. Only the module of
    the command that runs is imported.
    """

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, summary = COMMANDS[cmd_name]
            path, _, attribute = module.partition(":")
            found = getattr(importlib.import_module(path), attribute or "app")
            command = use_fast_readers(command_of(found))
            command.short_help = summary
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            meant = OTHER_WORDS.get(args[0])
            hint = f" Did you mean 'corral {meant}'?" if meant else nearest(args[0], COMMANDS)
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


class CommandGroup(TyperGroup):
    """A command with subcommands. Its help shows the whole first sentence of each subcommand, on several
    lines if necessary.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]
            )


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?]) ", paragraph, maxsplit=1)[0]


def nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    """Return the text " Did you mean 'X'?", where X is the word in `known` that is most similar to `word`;
    empty if no word is similar.
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def application(help_text: str = "", **settings: Any) -> typer.Typer:
    """Return a Typer application whose help has no frames and no options for shell completion."""
    if help_text:
        # Set the help text here, because Typer would otherwise show the docstring of the callback function.
        settings["help"] = help_text
    return typer.Typer(
        cls=CommandGroup,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
        **settings,
    )


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help. The characters \\b stop Typer from joining the
    lines.
    """
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


SETTINGS = {"help_option_names": ["-h", "--help"]}
