"""scontrol: shows and changes jobs, nodes and partitions. Each verb has a function of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from cli.slurm.arguments import VERSION, Arguments, Option, help_text, parse, switch
from cli.slurm.programs import SlurmError
from cli.slurm.selections import require_own_cluster

OPTIONS = (
    switch("all", "a"),
    switch("details", "d", "Show more fields, such as the GPUs of a job on each node."),
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
    "update": ("cli.slurm.scontrol_jobs:update", "Change jobs or nodes: update JobId=7 TimeLimit=30."),
    "show": ("cli.slurm.nodes.scontrol_show:show", "Show jobs, nodes, partitions and other objects."),
    "ping": ("cli.slurm.nodes.scontrol_show:ping", "Show whether the controller answers."),
    "version": ("cli.slurm.nodes.scontrol_show:version", "Show the version."),
    "write": ("cli.slurm.scontrol_jobs:write", "Write the script of a job: write batch_script 7 [FILE]."),
}
"""For each verb: `MODULE:NAME` of its function `f(words, arguments) -> exit code`, and its summary. `words`
are the words after the verb.
"""

_ELSEWHERE: Mapping[str, str] = {
    "abort": "Stop the controller as your system stops services.",
    "completing": "'squeue -t CG' lists jobs that end, with their nodes.",
    "create": "Write: corral reserve --help.",
    "delete": "Write: corral reserve --help.",
    "listpids": "Write: corral exec JOB -- ps -ef.",
    "notify": "Corral sends messages by mail or chat: corral notify --help.",
    "pidinfo": "'corral gpus' shows the processes on GPUs with their jobs.",
    "reboot": "Write: corral nodes drain NODE. Then reboot the host, and write: corral nodes resume NODE.",
    "reconfigure": "Write: corral config apply FILE.",
    "resume": "Corral does not suspend jobs. For a drained node: scontrol update NodeName=NODE State=RESUME.",
    "setdebug": "Set the log level of the controller in its configuration.",
    "shutdown": "Stop the controller as your system stops services. Jobs continue.",
    "suspend": "Corral does not suspend jobs. 'scontrol requeuehold' ends a job and holds it.",
    "takeover": "Start the other controller; it takes the store over when this one has ended.",
    "token": "Operators make tokens; docs/users.md describes how.",
    "top": "Write: corral job set JOB --priority HIGH.",
    "wait_job": "A job starts when its nodes are ready. Write: corral job wait JOB, for its end.",
}
"""The verbs of Slurm's scontrol that Corral does not have, each with advice for the error message."""


def main(words: list[str]) -> int:
    """Run the verb that the command line names, and return its exit code. Options may stand before and after
    the verb.
    """
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
    word = arguments.words[0].lower()
    verb = _verb(word)
    if not verb and word in _ELSEWHERE:
        raise SlurmError(f"Corral has no 'scontrol {word}'. {_ELSEWHERE[word]}")
    if not verb:
        print(f"invalid keyword: {arguments.words[0]}", file=sys.stderr)
        return 1
    if arguments.has("clusters") or arguments.has("cluster"):
        from cli.slurm.show.controller import cluster_name, controller

        with controller() as transport:
            require_own_cluster(arguments, lambda: cluster_name(transport))
    return run_verb(verb, arguments)


def _verb(word: str) -> str:
    """Return the verb `word`, or the first verb that begins with `word` (three letters or more); empty if
    there is none.
    """
    if word in VERBS:
        return word
    return next((verb for verb in VERBS if len(word) > 2 and verb.startswith(word)), "")


def run_verb(verb: str, arguments: Arguments) -> int:
    module, _, name = VERBS[verb][0].partition(":")
    code: int = getattr(importlib.import_module(module), name)(arguments.words[1:], arguments)
    return code
