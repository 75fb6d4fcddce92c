"""Commands of corral report about a month and about waits: month, efficiency and sla."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from cli.commands.reports.period import Since
from cli.exit_codes import CommandError
from cli.flags import option, switch, with_flag_groups
from cli.jobs.job_filter import OwnerFilter
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.registry import examples
from wire.api.service.reports import MonthReport, MonthRow, SlaRow, UsageView
from wire.http.client import Client
from wire.text import decimal, duration, memory, printable


class MonthBy(StrEnum):
    """The subject of one line of the monthly report: a project, a user or a queue."""

    PROJECT = "project"
    USER = "user"
    QUEUE = "queue"


MONTH_EXAMPLES = examples(
    "corral report month",
    "corral report month --month 2026-11 --by user --project vision",
    "corral report month --html november.html",
)


@with_flag_groups
@list_command
def month(
    month_: Annotated[
        str, option("--month", "YYYY-MM", "Month of the report. Default: the present month.")
    ] = "",
    by: Annotated[
        MonthBy, switch("--by", "Show one line for each project, user or queue. Default: project.")
    ] = MonthBy.PROJECT,
    of: OwnerFilter = OwnerFilter(),
    html: Annotated[
        Path | None,
        option("--html", "FILE", "Also write the report as an HTML page to FILE. Default: write no page."),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Show GPU-hours, cost, waits and idle GPUs of projects, users or queues in one calendar month.

    IDLE are measured GPU-hours in which the GPUs of jobs did not compute. WAIT P50 and P95 are the waits that
    50 % and 95 % of the started jobs did not exceed. OFF QUEUE are GPU-hours of processes outside of jobs.
    MONEY is the cost of GPUs, CPUs and memory at the present prices in [budgets] of scheduler.toml. CPU-HOURS
    and GIB-HOURS were allocated; CPU USED is the measured part of the CPU-hours. -o json and -o csv have
    integers (gpu_ms, cpu_ms, memory_mib_s), whose sums are exact.
    """
    body = Client().month(month_, by.value, of.only)
    if html is not None:
        try:
            html.write_text(month_page(body), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write {html}: {error.strerror}", "Choose another file.") from None
    month_table(body).show(output, body.rows, body)
    if output in (Format.TABLE, Format.WIDE):
        for line in month_notes(body):
            print_note(line)
    return 0


def month_table(report: MonthReport) -> Table[MonthRow]:
    return Table(
        [
            Column(report.by.upper(), lambda each: each.name, narrow=8),
            Column("JOBS", lambda each: str(each.jobs), right=True, rank=3),
            Column("GPU-HOURS", lambda each: _hours(each.gpu_hours), right=True),
            Column(
                f"MONEY {report.currency}".rstrip(), lambda each: f"{each.money:,.2f}", right=True, rank=1
            ),
            Column("CPU-HOURS", lambda each: _hours(each.cpu_hours), right=True, rank=5),
            Column("CPU USED", lambda each: _used(each.cpu_hours_used, each.cpu_hours), right=True, rank=9),
            Column("GIB-HOURS", lambda each: _hours(each.memory_gib_hours), right=True, rank=5),
            Column("PEAK RAM", lambda each: _peak(each.memory_peak_mib), right=True, rank=9),
            Column("LOAD", lambda each: _percent(each.utilisation), right=True, rank=4),
            Column("IDLE", lambda each: _hours(each.idle_gpu_hours), right=True, rank=5),
            Column("WAIT P50", lambda each: _wait(each.wait_p50_s), right=True, rank=6),
            Column("WAIT P95", lambda each: _wait(each.wait_p95_s), right=True, rank=6),
            Column("OFF QUEUE", lambda each: _hours(each.off_queue_gpu_hours), right=True, rank=7),
            Column("BY MODEL", _models, rank=8),
        ],
        lambda each: each.name,
        kind=MonthRow,
    )


def month_notes(report: MonthReport) -> list[str]:
    """Return sentences with the sums of the month, the GPU-hours of processes outside of jobs, and the lost
    GPU-hours.
    """
    money = f", {report.money:,.2f} {report.currency or 'in money'}" if report.money else ""
    lines = [
        f"{report.month}: {_hours(report.gpu_hours)} GPU-hours, {_hours(report.cpu_hours)} CPU-hours, "
        f"{_hours(report.memory_gib_hours)} GiB-hours of memory{money}"
    ]
    if report.off_queue_gpu_hours:
        lines.append(f"{_hours(report.off_queue_gpu_hours)} GPU-hours by processes outside of jobs")
    lines += [
        f"{_hours(each.gpu_hours)} GPU-hours of work were lost in the cluster: {each.cause}"
        for each in report.lost
        if each.gpu_hours
    ]
    return lines


def month_page(report: MonthReport) -> str:
    """Return the report as an HTML page."""
    from controller.sim.report.markup import Markup, el

    table = month_table(report)
    heading = el("tr", *(el("th", each.title) for each in table.columns))
    rows = [el("tr", *(el("td", each.text(row)) for each in table.columns)) for row in report.rows]
    style = "body { font-family: sans-serif } td, th { text-align: left; padding: 0 1.5em .2em 0 }"
    title = f"Use of the cluster in {report.month}"
    head = el("head", el("meta", charset="utf-8"), el("title", title), el("style", Markup(style)))
    notes = (el("p", line) for line in month_notes(report))
    body = el("body", el("h1", title), *notes, el("table", heading, *rows))
    return f"<!doctype html>\n{el('html', head, body)}\n"


SLA_EXAMPLES = examples("corral report sla", "corral report sla --since 30d -o json")


@list_command
def sla(since: Since = 7 * 86_400.0, output: Output = Format.TABLE) -> int:
    """Show, for each queue with a wait target, the part of its jobs that started within the target.

    The wait target is the key wait_target_s of [queues.NAME] in scheduler.toml. A job counts if it started
    while its queue had the target. LATE NOW is the number of jobs that still wait and have waited longer than
    the target.
    """
    body = Client().sla(max(0, int(time.time() - since)))
    sla_table().show(output, body.rows, body)
    if not body.rows and output in (Format.TABLE, Format.WIDE):
        print_note("No queue has a target: set wait_target_s in [queues.NAME] of scheduler.toml.")
    return 0


def sla_table() -> Table[SlaRow]:
    return Table(
        [
            Column("QUEUE", lambda each: each.queue, narrow=8),
            Column("TARGET", lambda each: duration(each.target_s), right=True),
            Column("MET", lambda each: _percent(each.met_percent), right=True),
            Column("STARTED", lambda each: str(each.started), right=True),
            Column("IN TIME", lambda each: str(each.in_target), right=True, rank=2),
            Column("WAIT P50", lambda each: _wait(each.wait_p50_s), right=True, rank=3),
            Column("WAIT P95", lambda each: _wait(each.wait_p95_s), right=True, rank=1),
            Column("LATE NOW", lambda each: str(each.waiting_longer), right=True),
        ],
        lambda each: each.queue,
        kind=SlaRow,
    )


EFFICIENCY_EXAMPLES = examples("corral report efficiency", "corral report efficiency --since 30d -o csv")


@list_command
def efficiency(since: Since = 7 * 86_400.0, output: Output = Format.TABLE) -> int:
    """Show the GPUs, CPUs and memory that the jobs of each user requested and used.

    LOAD is the mean load of the user's GPUs. IDLE are the GPU-hours that this load leaves unused. CPU USED is
    the part of the allocated CPU time that the jobs used. The command 'corral job stats' shows one job, and
    better options of 'corral submit' for this job.
    """
    body = Client().usage("user", max(0, int(time.time() - since)))
    efficiency_table().show(output, body.usage, body)
    return 0


def efficiency_table() -> Table[UsageView]:
    return Table(
        [
            Column("USER", lambda each: each.name, narrow=8),
            Column("JOBS", lambda each: str(each.jobs), right=True, rank=2),
            Column("GPU-HOURS", lambda each: _hours(each.gpu_hours), right=True),
            Column("LOAD", lambda each: _percent(each.utilisation), right=True),
            Column("IDLE", _idle, right=True),
            Column("CPU-HOURS", lambda each: _hours(each.cpu_hours_held), right=True, rank=1),
            Column("CPU USED", _cpu_used, right=True),
            Column("GIB-HOURS", lambda each: _hours(each.memory_gib_hours), right=True, rank=3),
            Column("KWH", lambda each: f"{each.energy_wh / 1000:.1f}", right=True, rank=4),
        ],
        lambda each: each.name,
        kind=UsageView,
    )


def _idle(each: UsageView) -> str:
    return "-" if each.utilisation is None else _hours(each.gpu_hours * (1 - each.utilisation / 100))


def _cpu_used(each: UsageView) -> str:
    return _used(each.cpu_hours, each.cpu_hours_held)


def _used(used: float, held: float) -> str:
    return _percent(100 * used / held) if held else "-"


def _models(each: MonthRow) -> str:
    return printable("; ".join(f"{use.model} {_hours(use.gpu_hours)}" for use in each.models), 200)


def _hours(hours: float) -> str:
    return decimal(hours) if hours < 1_000 else f"{hours:,.0f}"


def _peak(mib: int) -> str:
    return memory(mib) if mib else "-"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.0f} %"


def _wait(wait_s: float | None) -> str:
    return "-" if wait_s is None else duration(wait_s)
