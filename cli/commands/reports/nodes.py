"""The command corral report nodes: how jobs end on each node, and which nodes are unusual."""

from __future__ import annotations

import time

from cli.commands.reports.period import Since
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import examples
from wire.api.service.reports import NodeOutcomes
from wire.http.client import Client
from wire.text import decimal, printable

NODES_EXAMPLES = examples(
    "corral report nodes", "corral report nodes --since 30d", "corral report nodes -o json"
)


@list_command
def nodes(since: Since = 7 * 86_400.0, output: Output = Format.TABLE) -> int:
    """Show for each node how many jobs failed and why, compared with the same jobs on other nodes.

    Jobs are the same if their users and their names without a number at the end are equal. EXPECTED is the
    number of failures that these jobs have on other nodes. A node gets a warning if it has at least three
    failures, of jobs with different names, and three times as many as expected, and if chance does not
    explain them. It also gets a warning if its jobs take 1.3 times as long as usual (RUN TIME). Cancelled and
    preempted jobs and ends at the time limit do not count.
    """
    asked = max(0, int(time.time() - since))
    body = Client().nodes_report(asked)
    nodes_table().show(output, body.rows, body)
    if output in (Format.TABLE, Format.WIDE):
        for row in body.rows:
            if row.warning:
                print_note(
                    f"{row.node}: {row.warning}. 'corral nodes drain {row.node}' keeps jobs away from it."
                )
        if body.since > asked + 1:
            print_note(f"The controller has only jobs since {clock(body.since)} in memory.")
    return 0


def nodes_table() -> Table[NodeOutcomes]:
    return Table(
        [
            Column("NODE", lambda each: each.node, narrow=8),
            Column("STATE", lambda each: each.state.value),
            Column("SINCE", lambda each: clock(each.state_since), rank=5),
            Column("JOBS", lambda each: f"{each.jobs:,}", right=True),
            Column("FAILED", lambda each: f"{each.failed:,}", right=True),
            Column("EXPECTED", lambda each: f"{each.expected:.1f}", right=True),
            Column("GPU-HOURS", lambda each: decimal(each.gpu_hours), rank=4, right=True),
            Column("HELD", lambda each: _percent(each.held_percent), rank=3, right=True),
            Column("LOAD", lambda each: _percent(each.load_percent), rank=2, right=True),
            Column(
                "RUN TIME", lambda each: "-" if each.slower is None else f"×{each.slower:.2f}", right=True
            ),
            Column("FAILURES", _failures, rank=1, narrow=12),
        ],
        name=lambda each: each.node,
        kind=NodeOutcomes,
    )


def _failures(row: NodeOutcomes) -> str:
    return ", ".join(f"{each.jobs} {printable(each.failure)}" for each in row.failures)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"
