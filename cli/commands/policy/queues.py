"""corral queues: lists queues with their policies and their use."""

from __future__ import annotations

from cli.output.formats import Column, Format, Output, Table
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.tenants import QueueView
from wire.http.client import Client
from wire.job.spec import gpus_text

app = application()


@app.command(epilog=examples("corral queues", "corral queues -o json"))
def queues(output: Output = Format.TABLE) -> int:
    """Show queues: the policy of each, its waiting and running jobs, and the GPUs of these jobs.

    Queues are declared in the tables [queues.NAME] of scheduler.toml. A job names its queue with --queue. The
    command 'corral queue' lists the jobs.
    """
    body = Client().queues()
    table().show(output, body.queues, body)
    if not any(each.settings for each in body.queues) and output in (Format.TABLE, Format.WIDE):
        print_note("This cluster has no tables of queues. Every name is accepted, and all queues are alike.")
    return 0


def table() -> Table[QueueView]:
    return Table(
        [
            Column("QUEUE", lambda each: each.name, narrow=8),
            Column("PRIORITY", lambda each: str(each.priority), right=True, rank=1),
            Column("WAITING", lambda each: str(each.waiting), right=True),
            Column("RUNNING", lambda each: str(each.running), right=True),
            Column("GPUS", lambda each: gpus_text(each.gpus), right=True),
            Column("POLICY", lambda each: "; ".join(each.policy), rank=2, narrow=20),
        ],
        lambda each: each.name,
        kind=QueueView,
    )
