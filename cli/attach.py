"""corral attach: a shell in the allocation of a job that runs."""

from __future__ import annotations

from cli import shell
from cli.commands import application, examples
from cli.exec import Node
from cli.selection import Job, one
from wire.client import Client

app = application()


@app.command(epilog=examples("corral attach last", "corral attach --node gpu02 7"))
def attach(job: Job, node: Node = "") -> int:
    """Open a shell where a job runs: as its user, on its GPUs and CPUs, within its limits.

    It ends with the job, and the job goes on without it.
    """
    return shell.run(one(Client(), job).id, (), node, shell.wanted(None))
