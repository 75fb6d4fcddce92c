"""corral report: shows the usage of a month, the fairness of the cluster, the causes of idle GPUs, and the
errors of estimates.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

from cli.commands.reports.budget_table import budget_table
from cli.commands.reports.fairness_tables import fairness_table, waste_sentence, waste_table
from cli.commands.reports.month import (
    EFFICIENCY_EXAMPLES,
    MONTH_EXAMPLES,
    SLA_EXAMPLES,
    efficiency,
    month,
    sla,
)
from cli.commands.reports.nodes import NODES_EXAMPLES, nodes
from cli.commands.reports.period import Since
from cli.flags import switch
from cli.output.formats import Column, Format, Output, Table, write, write_data
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.service.reports import EstimateReport, PredictionComparison, RunEstimate, StartEstimates
from wire.http.client import Client
from wire.text import duration

app = application(
    "Show what was used and what it cost, how long jobs waited, why GPUs were idle, and how fair the "
    "cluster was."
)


class By(StrEnum):
    """The subject of one line of the fairness report: a project or a user."""

    PROJECT = "project"
    USER = "user"


@app.callback(
    epilog=examples(
        "corral report month --by user",
        "corral report efficiency",
        "corral report sla",
        "corral report nodes",
        "corral report fairness --by user",
        "corral report waste --since 1d",
        "corral report budget",
        "corral report estimates",
        "corral report starts",
    )
)
def front() -> None:
    """Show reports about the past: usage and cost, waits of jobs, causes of idle GPUs, the fairness between
    projects, and failures by node.
    """


@app.command(
    epilog=examples(
        "corral report fairness",
        "corral report fairness --by user --since 30d",
        "corral report fairness -o json",
    )
)
@list_command
def fairness(
    since: Since = 7 * 86_400.0,
    by: Annotated[
        By, switch("--by", "Show one line for each project or user. Default: project.")
    ] = By.PROJECT,
    output: Output = Format.TABLE,
) -> int:
    """Show for each project or user the used GPU-hours, the GPU-hours to which it was entitled, and the waits
    of its jobs.

    The entitlement follows max-min fairness: the capacity is divided among the projects in proportion to
    their weights. No project gets more than the GPUs that its running and waiting jobs request; the other
    projects divide the rest. POINTS is GOT minus ENTITLED, in percent of the capacity. POINTS is negative if
    GOT is less. Jobs with the priority SCAVENGER do not count.
    """
    body = Client().fairness(by.value, max(0, int(time.time() - since)))
    fairness_table(by.value).show(output, body.rows, body)
    if output in (Format.TABLE, Format.WIDE):
        for row in body.rows:
            if row.judgement:
                print_note(row.judgement)
    return 0


app.command("month", epilog=MONTH_EXAMPLES)(month)
app.command("efficiency", epilog=EFFICIENCY_EXAMPLES)(efficiency)
app.command("sla", epilog=SLA_EXAMPLES)(sla)
app.command("nodes", epilog=NODES_EXAMPLES)(nodes)


@app.command(epilog=examples("corral report budget", "corral report budget -o json"))
@list_command
def budget(output: Output = Format.TABLE) -> int:
    """Show how much of its budget each project has used in this calendar month, in GPU-hours and in money.

    The usage of running jobs until now is included. The column THEN shows the effect of a used-up budget.
    With alert, only an event is recorded. With low, the jobs of the project start after all other jobs. With
    stop, the jobs of the project wait for the next month.
    """
    body = Client().budgets()
    budget_table(time.time()).show(output, body.budgets, body)
    return 0


@app.command(epilog=examples("corral report waste", "corral report waste --since 30d -o json"))
def waste(since: Since = 7 * 86_400.0, output: Output = Format.TABLE) -> int:
    """Show why GPUs were idle, in GPU-hours by cause, and the GPU-hours of work that was lost."""
    body = Client().waste(max(0, int(time.time() - since)))
    if output.is_data:
        write_data(output, body)
        return 0
    waste_table("IDLE").show(output, body.idle, body)
    if output in (Format.TABLE, Format.WIDE):
        if body.lost:
            write("\n")
            waste_table("LOST").show(output, body.lost, body)
        print_note(waste_sentence(body))
    return 0


@app.command(epilog=examples("corral report estimates", "corral report estimates -o json"))
def estimates(output: Output = Format.TABLE) -> int:
    """Show by how much predicted run times, time limits and estimated start times differed from the real
    times.
    """
    body = Client().estimates()
    runs_table().show(output, _lines(body), body)
    if output in (Format.TABLE, Format.WIDE):
        write("\n")
        starts_table().show(output, body.starts, body)
        print_note(_planning_note(body))
    return 0


@app.command(epilog=examples("corral report starts", "corral report starts -o csv"))
@list_command
def starts(output: Output = Format.TABLE) -> int:
    """Show by how much estimated start times differed from the real start times, for three kinds of
    estimates: backfill reservations, forecasts from time limits, and forecasts from predicted run times.
    """
    body = Client().estimates()
    starts_table().show(output, body.starts, body)
    return 0


def _lines(body: EstimateReport) -> list[RunEstimate]:
    return [*body.runs, *([body.all_runs] if body.all_runs is not None else [])]


def _planning_note(body: EstimateReport) -> str:
    counts_on = "predictions" if body.plans == "predicted" else "time limits"
    none = "" if body.runs else "No job that was predicted has ended yet. "
    setting = f"[backfill] estimate = {body.plans!r} in scheduler.toml."
    if body.comparison is None:
        return f"{none}Backfill plans with {counts_on}: {setting}"
    if not body.comparison.used:
        counts_on = "time limits, because predictions made waits longer"
    return f"{none}Backfill plans with {counts_on}: {setting}{_comparison(body.comparison)}"


def _comparison(body: PredictionComparison) -> str:
    """Return a sentence about the slowdown with predictions, or an empty text if nothing is compared yet."""
    if body.ratio is None:
        return ""
    return (
        f" On the last {body.jobs} jobs, the bounded slowdown with predictions is {body.ratio:.2f} times the "
        "slowdown of EASY backfill with time limits (simulated)."
    )


def runs_table() -> Table[RunEstimate]:
    return Table(
        [
            Column("USER", lambda each: each.user or "(all)", narrow=6),
            Column("JOBS", lambda each: str(each.jobs), right=True),
            Column("RAN", lambda each: duration(each.run_s), right=True),
            Column("BIAS", lambda each: _signed(each.bias_s), right=True),
            Column("ERROR", lambda each: duration(each.error_s), right=True),
            Column("OUTLIVED", lambda each: f"{each.outlived:.0%}", right=True),
            Column(
                "LIMITS OFF BY",
                lambda each: "-" if each.limit_error_s is None else duration(each.limit_error_s),
                right=True,
            ),
        ],
        name=lambda each: each.user or "(all)",
        kind=RunEstimate,
    )


_KINDS = {"promise": "promised", "latest": "at the latest", "likely": "likely"}


def starts_table() -> Table[StartEstimates]:
    """Return the table of errors of estimated start times, with one line for each kind of estimate."""
    return Table(
        [
            Column("START", lambda each: _KINDS.get(each.kind, each.kind), narrow=8),
            Column("ESTIMATES", lambda each: str(each.count), right=True),
            Column("AHEAD", lambda each: duration(each.ahead_s), right=True),
            Column("BIAS", lambda each: _signed(each.bias_s), right=True),
            Column("ERROR", lambda each: duration(each.error_s), right=True),
            Column("LATE", lambda each: f"{each.late:.0%}", right=True),
        ],
        name=lambda each: each.kind,
        kind=StartEstimates,
    )


def _signed(seconds: float) -> str:
    text = duration(abs(seconds))
    return text if text == duration(0) else ("-" if seconds < 0 else "+") + text
