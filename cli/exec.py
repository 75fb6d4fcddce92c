"""corral exec: a command in the allocation of a job that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli import shell
from cli.commands import SETTINGS, application, examples
from cli.exits import Mistake
from cli.selection import Job, one
from wire.client import Client

app = application()

Node = Annotated[str, typer.Option("--node", metavar="NODE", help="Where, of a job on several nodes.")]


@app.command(
    context_settings={**SETTINGS, "allow_interspersed_args": False},
    epilog=examples(
        "corral exec 7 -- nvidia-smi",
        "corral exec --node gpu02 7 -- py-spy dump --pid 4711",
        "tar c data | corral exec last -- tar x -C /tmp",
    ),
)
def exec_(
    job: Job,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARG]...")],
    node: Node = "",
    tty: Annotated[
        bool | None, typer.Option("--tty/--no-tty", help="With a terminal; otherwise if here is one.")
    ] = None,
) -> int:
    """Run a command where a job runs: as its user, on its GPUs and CPUs, within its limits.

    Input, output and exit code are those of the command. It ends with the job.
    """
    if not command:
        raise Mistake("there is nothing to run", "Write the command behind '--': corral exec 7 -- nvidia-smi")
    words = command[1:] if command[0] == "--" else command
    return shell.run(one(Client(), job).id, tuple(words), node, shell.wanted(tty))
