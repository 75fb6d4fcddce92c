"""corral queues: lists queues with their policies and the GPUs that their jobs use."""

from __future__ import annotations

from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.policy.queues import QueueDay, QueueView
from wire.http.client import Client
from wire.job.spec import gpus_text
from wire.text import duration

app = application()


@app.command(epilog=examples("corral queues", "corral queues -o json"))
@list_command
def queues(output: Output = Format.TABLE) -> int:
    """Show queues: the policy of each, its waiting and running jobs, and the GPUs of these jobs.

    ENDED/H, WAIT P50 and WAIT P95 are figures of the last 24 hours. ENDED/H is the mean number of jobs that
    ended per hour. WAIT P50 and WAIT P95 are the waits that 50 % and 95 % of the started jobs did not exceed.

    Queues are declared in the tables [queues.NAME] of scheduler.toml. A job names its queue with --queue. The
    command 'corral queue' lists the jobs.
    """
    body = Client().queues()
    table().show(output, body.queues, body)
    if not any(each.settings for each in body.queues) and output in (Format.TABLE, Format.WIDE):
        print_note(
            "scheduler.toml has no table [queues.NAME]. Every queue name is accepted; all queues are alike."
        )
    return 0


def table() -> Table[QueueView]:
    return Table(
        [
            Column("QUEUE", lambda each: each.name, narrow=8),
            Column("PRIORITY", lambda each: str(each.priority), right=True, rank=1),
            Column("WAITING", lambda each: str(each.waiting), right=True),
            Column("RUNNING", lambda each: str(each.running), right=True),
            Column("GPUS", lambda each: gpus_text(each.gpus), right=True),
            Column("ENDED/H", lambda each: f"{_day(each).ended_per_hour:.1f}", right=True, rank=5),
            Column("WAIT P50", lambda each: _wait(_day(each).wait_p50_s), right=True, rank=3),
            Column("WAIT P95", lambda each: _wait(_day(each).wait_p95_s), right=True, rank=4),
            Column("POLICY", lambda each: "; ".join(each.policy), rank=2, narrow=20),
        ],
        lambda each: each.name,
        kind=QueueView,
    )


def _day(queue: QueueView) -> QueueDay:
    return queue.day or QueueDay(0.0)


def _wait(wait_s: float | None) -> str:
    return "-" if wait_s is None else duration(wait_s)
