"""corral exec and corral attach: run a command, or a shell, in the allocation of a running job."""

from __future__ import annotations

from typing import Annotated

from cli.exit_codes import CommandError
from cli.flags import argument, option, switch
from cli.jobs import exec_terminal
from cli.jobs.selection import Job, select_one
from cli.registry import SETTINGS, application, examples
from wire.http.client import Client

app, attach_app = application(), application()

OPTIONS_BEFORE = {**SETTINGS, "allow_interspersed_args": False}
"""Options that follow the argument JOB belong to the command that runs in the job."""
EXEC_EXAMPLES = examples(
    "corral exec 7 -- nvidia-smi",
    "corral exec --node gpu02 7 -- py-spy dump --pid 4711",
    "tar c data | corral exec last -- tar x -C /tmp",
)
ATTACH_EXAMPLES = examples("corral attach last", "corral attach --node gpu02 7")

Node = Annotated[
    str,
    option(
        "--node",
        "NODE",
        "Run the command or shell on this node of the job. Default: the first node of the job.",
    ),
]


@app.command(context_settings=OPTIONS_BEFORE, epilog=EXEC_EXAMPLES)
def exec_(
    job: Job,
    command: Annotated[list[str], argument("-- COMMAND [ARG]...", "Command to run, with its arguments.")],
    node: Node = "",
    tty: Annotated[
        bool | None,
        switch(
            "--tty/--no-tty",
            "Give the command a terminal. Default: only if 'corral exec' itself runs in a terminal.",
        ),
    ] = None,
) -> int:
    """Run a command inside a running job: as the job's user, on the job's GPUs and CPUs, within the job's
    limits.

    'corral exec' connects its stdin, stdout and stderr with the command, and exits with the command's exit
    code. The command is ended when the job ends.
    """
    if not command:
        raise CommandError(
            "there is nothing to run", "Write the command behind '--': corral exec 7 -- nvidia-smi"
        )
    words = command[1:] if command[0] == "--" else command
    return exec_terminal.run(
        select_one(Client(), job).id, tuple(words), node, exec_terminal.needs_terminal(tty)
    )


@attach_app.command(epilog=ATTACH_EXAMPLES)
def attach(job: Job, node: Node = "") -> int:
    """Open a shell inside a running job: as the job's user, on the job's GPUs and CPUs, within the job's
    limits.

    The shell is ended when the job ends. The job keeps running when you leave the shell.
    """
    return exec_terminal.run(select_one(Client(), job).id, (), node, exec_terminal.needs_terminal(None))
