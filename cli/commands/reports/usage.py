"""corral usage: shows GPU-hours, GPU load and energy by user, project, queue or job."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

from cli.commands.reports.period import Since
from cli.exit_codes import CommandError
from cli.flags import option, switch, with_flag_groups
from cli.jobs.job_filter import OwnerFilter
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import application, examples
from wire import amounts
from wire.api.service.reports import StintView, UsageView
from wire.http.client import Client
from wire.text import memory


class By(StrEnum):
    """The subject of one line of the usage table: a user, a project, a queue or a job."""

    USER = "user"
    PROJECT = "project"
    QUEUE = "queue"
    JOB = "job"


app = application()


@app.command(
    epilog=examples(
        "corral usage                        GPU-hours of the last week, by user",
        "corral usage --by project --since 30d",
        "corral usage --by job --since 1d -o csv",
        "corral usage --by job --project vision --queue batch",
        "corral usage --off-queue --since 1d  GPU usage outside of jobs",
    )
)
@with_flag_groups
@list_command
def usage(
    by: Annotated[
        By, switch("--by", "Show one line for each user, project, queue or job. Default: user.")
    ] = By.USER,
    since: Since = 7 * 86_400.0,
    until: Annotated[
        float | None,
        option(
            "--until",
            "TIME",
            "End of the period: TIME before now (e.g. 1d). Default: now.",
            parser=amounts.seconds,
        ),
    ] = None,
    of: OwnerFilter = OwnerFilter(),
    off_queue: Annotated[
        bool,
        switch(
            "--off-queue", "Show GPU usage by processes that no job has started, instead of usage by jobs."
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Show GPU-hours, GPU load, peak GPU memory, energy and money of jobs.

    MONEY is the cost of GPUs, CPUs and memory at the present prices in [budgets] of scheduler.toml. -o wide
    also shows the used and the allocated CPU-hours, the allocated GiB-hours of main memory, and its peak use.
    """
    now = time.time()
    window = max(0, int(now - since)), None if until is None else int(now - until)
    if off_queue:
        if of.only:
            raise CommandError(
                f"--off-queue with --{next(iter(of.only))}: processes outside of jobs belong to no project",
                "Leave out --user, --project and --queue, or leave out --off-queue.",
            )
        found = Client().stints(*window)
        stint_table().show(output, found.stints, found)
        return 0
    body = Client().usage(by.value, *window, of.only)
    money = any(each.money is not None for each in body.usage)
    usage_table(by.value, body.currency, money=money).show(output, body.usage, body)
    if body.total > len(body.usage):
        print_note(f"{body.total - len(body.usage)} more lines, with less usage, are not shown.")
    return 0


def usage_table(by: str, currency: str = "", *, money: bool = False) -> Table[UsageView]:
    """Return the table of the usage. `by` is the title of the first column. With `money`, the table has a
    column with the cost in `currency`.
    """
    return Table(
        [
            Column(by.upper(), lambda each: each.name, narrow=8),
            Column("JOBS", lambda each: str(each.jobs), rank=3, right=True),
            Column("GPU-HOURS", lambda each: f"{each.gpu_hours:.2f}", right=True),
            Column("BUSY", lambda each: _percent(each.utilisation), rank=1, right=True),
            *([Column(f"MONEY {currency}".rstrip(), _money, rank=1, right=True)] if money else []),
            Column("P95", lambda each: _percent(each.p95), rank=4, right=True),
            Column("PEAK MEMORY", lambda each: memory(each.peak_mib), rank=5, right=True),
            Column("ENERGY", lambda each: _energy(each.energy_wh), rank=2, right=True),
            Column("CPU-HOURS", lambda each: f"{each.cpu_hours:.2f}", rank=6, right=True, wide=True),
            Column("CPU HELD", lambda each: f"{each.cpu_hours_held:.2f}", rank=7, right=True, wide=True),
            Column("GIB-HOURS", lambda each: f"{each.memory_gib_hours:.2f}", rank=8, right=True, wide=True),
            Column("PEAK RAM", lambda each: memory(each.memory_peak_mib), rank=9, right=True, wide=True),
        ],
        name=lambda each: each.name,
        kind=UsageView,
    )


def stint_table() -> Table[StintView]:
    return Table(
        [
            Column("USER", lambda each: each.user, narrow=6),
            Column("NODE", lambda each: each.node, narrow=6),
            Column("GPU", lambda each: each.number or "-", right=True),
            Column("SINCE", lambda each: clock(each.since), rank=1),
            Column("UNTIL", lambda each: clock(each.until) if each.until else "now", rank=2),
            Column("GPU-HOURS", lambda each: f"{each.gpu_hours:.2f}", right=True),
            Column("CHARGED", lambda each: f"{each.units:.2f}" if each.units else "-", rank=3, right=True),
            Column("PID", lambda each: str(each.pid), rank=5, right=True),
            Column("COMMAND", lambda each: each.command, rank=4, narrow=12),
        ],
        name=lambda each: f"{each.user}@{each.node}:{each.gpu}",
        kind=StintView,
    )


def _money(each: UsageView) -> str:
    return "-" if each.money is None else f"{each.money:,.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}%"


def _energy(wh: float) -> str:
    return f"{wh / 1000:.2f}kWh" if wh >= 1000 else f"{wh:.1f}Wh"
