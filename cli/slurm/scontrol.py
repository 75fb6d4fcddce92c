"""scontrol: shows and changes jobs, nodes and partitions. Each verb has a function of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from cli.slurm.arguments import VERSION, Arguments, Option, help_text, parse, switch
from cli.slurm.programs import SlurmError

OPTIONS = (
    switch("all", "a"),
    switch("details", "d", "Show more: with jobs the GPUs on each node."),
    switch("federation"),
    switch("future", "F"),
    switch("help", "h", "Show this help and exit."),
    switch("hide"),
    switch("local"),
    Option("cluster", "M"),
    Option("clusters"),
    switch("oneliner", "o", "Print each object on one line."),
    switch("quiet", "Q"),
    switch("sibling"),
    Option("uid", "u"),
    switch("verbose", "v"),
    switch("version", "V", "Show the version of Slurm whose commands these are, and exit."),
)
USAGE = "scontrol [OPTIONS] COMMAND"

VERBS: Mapping[str, tuple[str, str]] = {
    "hold": ("cli.slurm.scontrol_jobs:hold", "Hold jobs, so that they do not start."),
    "release": ("cli.slurm.scontrol_jobs:release", "Let held jobs start again."),
    "requeue": ("cli.slurm.scontrol_jobs:requeue", "Queue running jobs again."),
    "requeuehold": ("cli.slurm.scontrol_jobs:requeue_hold", "Queue running jobs again, and hold them."),
    "uhold": ("cli.slurm.scontrol_jobs:hold", "Hold jobs, so that they do not start."),
    "update": ("cli.slurm.scontrol_jobs:update", "Change jobs: update JobId=7 TimeLimit=30."),
    "show": ("cli.slurm.nodes.scontrol_show:show", "Show jobs, nodes, partitions and other objects."),
    "ping": ("cli.slurm.nodes.scontrol_show:ping", "Show whether the controller answers."),
    "version": ("cli.slurm.nodes.scontrol_show:version", "Show the version."),
}
"""For each verb: its function `verb(words, arguments) -> exit code`, and its summary. `words` are the words
after the verb.
"""


def main(words: list[str]) -> int:
    """Run scontrol. Options may stand before and after the verb."""
    arguments = parse(OPTIONS, words)
    if arguments.has("version"):
        print(VERSION)
        return 0
    if arguments.has("help") or arguments.words[:1] == ["help"]:
        verbs = "\n".join(f"  {verb:<30}  {about}" for verb, (_, about) in VERBS.items())
        print(f"{help_text(USAGE, OPTIONS)}\n\nCommands:\n{verbs}")
        return 0
    if not arguments.words:
        raise SlurmError("No command is given. Corral has no interactive mode of scontrol.")
    verb = _verb(arguments.words[0].lower())
    if not verb:
        print(f"invalid keyword: {arguments.words[0]}", file=sys.stderr)
        return 1
    return run_verb(verb, arguments)


def _verb(word: str) -> str:
    """Return the verb with this name, or the first verb that begins with this text; empty if there is no such
    verb.
    """
    if word in VERBS:
        return word
    return next((verb for verb in VERBS if len(word) > 2 and verb.startswith(word)), "")


def run_verb(verb: str, arguments: Arguments) -> int:
    module, _, name = VERBS[verb][0].partition(":")
    code: int = getattr(importlib.import_module(module), name)(arguments.words[1:], arguments)
    return code
