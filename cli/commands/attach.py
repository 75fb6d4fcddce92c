"""corral attach: opens a shell in the allocation of a running job."""

from __future__ import annotations

from cli.commands.exec import Node
from cli.jobs import exec_terminal
from cli.jobs.selection import Job, select_one
from cli.registry import application, examples
from wire.http.client import Client

app = application()


@app.command(epilog=examples("corral attach last", "corral attach --node gpu02 7"))
def attach(job: Job, node: Node = "") -> int:
    """Open a shell inside a running job: as its user, on its GPUs and CPUs, within its limits.

    The shell ends when the job ends. The job keeps running when the shell ends.
    """
    return exec_terminal.run(select_one(Client(), job).id, (), node, exec_terminal.wanted(None))
