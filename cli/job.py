"""corral job …: one job, or several."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from cli import exits, facts, units
from cli.asked import Asked, asking
from cli.changes import as_options, changes_of
from cli.commands import application, examples
from cli.messages import note, refusal
from cli.output import Format, Output, write_facts, write_json
from cli.selection import Job, Jobs, Mine, one, select
from cli.tables import job_table
from wire.api.jobs import JobRefused, JobsOrder
from wire.api.problem import Problem
from wire.client import Client
from wire.text import counted

SHOWN = 100
"""Reasons for refusals that are told."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show which jobs, change nothing.")]

app = application("Show, follow, change, cancel, hold, release, preempt or wait for jobs.")


@app.command(epilog=examples("corral job show 7", "corral job show last -o json", "corral job show 7_[0-3]"))
def show(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Show all about a job: what it asked for, where it is, and why it waits."""
    client = Client()
    found = select(client, jobs, mine=False, ended=True)
    if len(found) == 1 and output in (Format.TABLE, Format.WIDE, Format.JSON):
        detail = client.job(found[0].id)
        if output is Format.JSON:
            write_json(detail)
        else:
            write_facts(facts.of_job(detail))
    else:
        job_table().show(output, found)
    return 0


@app.command(
    epilog=examples(
        "corral job logs 7",
        "corral job logs -f last",
        "corral job logs --stderr 7_3",
        "corral job logs -n 20 7",
        "corral job logs --node gpu02 7",
    )
)
def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", "-e", help="What it wrote to stderr.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", metavar="N", min=0, help="Only the last N lines.")
    ] = None,
    node: Annotated[
        str,
        typer.Option("--node", metavar="NODE", help="Of a job on several nodes, only what it wrote there."),
    ] = "",
) -> int:
    """Show what a job wrote; of a job on several nodes every line with its node."""
    from cli import gang
    from cli.follow import until_started
    from cli.logs import copy, last_lines, last_lines_and_place

    client = Client()
    found, stream, place = one(client, job), "stderr" if stderr else "stdout", 0
    if follow and not found.attempt and not found.state.terminal:
        note(f"corral: {facts.line_of(found)}; its output follows when it starts")
        until_started(found.id)
        found = client.job(found.id).job
    nodes, out = [held.node for held in found.held], sys.stdout.buffer
    if len(nodes) > 1 and not node:
        if follow and not found.state.terminal:
            gang.follow(found.id, nodes, stream, out)
        else:
            gang.show(client, found.id, nodes, stream, out, lines)
        return 0
    if lines is not None:
        if follow:
            text, place = last_lines_and_place(client, found.id, stream, lines, node=node)
        else:
            text = last_lines(client, found.id, stream, lines, node=node)
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    if follow or lines is None:
        copy(client, found.id, stream, out, follow=follow, offset=place, node=node)
    return 0


@app.command(
    epilog=examples("corral job cancel 7", "corral job cancel 7_[0-9] 12-15", "corral job cancel --mine")
)
def cancel(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """End jobs, whatever they are doing: SIGTERM, the grace they asked for, SIGKILL."""
    return _order(JobsOrder("cancel", tuple(jobs), mine, only_tell=dry_run), output)


@app.command(
    "set",
    epilog=examples(
        "corral job set 7 --priority high --time 4h",
        "corral job set 7_[0-9] --after-ok 5",
        "corral job set --clear deadline,timeout -- 7",
    ),
)
@asking
def change(
    asked: Asked,
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    clear: Annotated[
        str,
        typer.Option("--clear", metavar="OPTIONS", help="As if not given: deadline,after."),
    ] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Change what jobs ask for: everything while they wait, a few things while they run.

    Options are those of 'corral submit'. What is given replaces what was asked before.
    """
    changes = changes_of(asked, clear)
    return _order(JobsOrder("set", tuple(jobs), mine, changes, only_tell=dry_run), output)


@app.command(epilog=examples("corral job signal 7 USR1", "corral job signal last SIGHUP"))
def signal(
    job: Job, name: Annotated[str, typer.Argument(metavar="SIGNAL", help="USR1, USR2, HUP, INT, TERM, …")]
) -> int:
    """Tell a running job something: those of its processes that have a handler for the signal get it."""
    client = Client()
    try:
        client.signal(one(client, job).id, units.signal(name))
    except ValueError as error:
        raise exits.Mistake(str(error), "'corral job cancel' ends a job.") from None
    return 0


@app.command(epilog=examples("corral job hold 7", "corral job hold --mine"))
def hold(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Keep queued jobs from starting."""
    return _order(JobsOrder("hold", tuple(jobs), mine, only_tell=dry_run), output)


@app.command(epilog=examples("corral job release 7", "corral job release --mine"))
def release(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Let held jobs start again."""
    return _order(JobsOrder("release", tuple(jobs), mine, only_tell=dry_run), output)


@app.command(epilog=examples("corral job preempt 7", "corral job preempt --hold 7_[0-9]"))
def preempt(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Do not start it again before it is released.")
    ] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """End what jobs do, once they have saved it if they can, and queue them again in their places."""
    order = JobsOrder("preempt", tuple(jobs), mine, stay_held=hold, only_tell=dry_run)
    return _order(order, output)


@app.command(
    epilog=examples(
        "corral job wait 7", "corral job wait --mine --timeout 2h", "corral job wait 7 && echo done"
    )
)
def wait(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Give up after this long: 90s, 2h30m. Exit code 6."),
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Wait until jobs have ended, in whatever way; exit with the code of the first that failed."""
    from cli.follow import until_over, worst

    deadline = _deadline(timeout)
    found = select(Client(), jobs, mine, ended=True)
    ended = until_over([job.id for job in found], deadline) if found else []
    job_table().show(output, ended)
    return worst(ended)


def _order(order: JobsOrder, output: Format) -> int:
    """Do it to every job that is meant; what is refused for one is said, and the others are done."""
    if not order.jobs and not order.mine:
        raise exits.Mistake("no job is named", "Name jobs (7, 7_3, 1-3, last, all), or use --mine.")
    answer = Client().order(order)
    _complain(answer.refused, options=order.action == "set")
    if output is Format.TABLE and not order.only_tell:
        for job in answer.done:
            note(facts.line_of(job))
    else:
        job_table().show(output, answer.done)
    if len(answer.done) + len(answer.refused) != 1 and not order.only_tell:
        note(f"{len(answer.done):,} done, {len(answer.refused):,} failed")
    return exits.of_problem(answer.refused[0].problem) if answer.refused else 0


def _complain(refused: Sequence[JobRefused], *, options: bool) -> None:
    """Each reason once, with those whom it concerns."""
    concerned: dict[Problem, list[str]] = {}
    for each in refused:
        concerned.setdefault(each.problem, []).append(each.job)
    for problem, jobs in list(concerned.items())[:SHOWN]:
        told = as_options(problem) if options else problem
        if len(jobs) > 1:
            names = ", ".join(jobs[:3]) + (", …" if len(jobs) > 3 else "")
            told = replace(told, message=f"{told.message} ({counted(len(jobs), 'job')}: {names})")
        refusal(told)
    if len(concerned) > SHOWN:
        note(f"{counted(len(concerned) - SHOWN, 'other reason')} why jobs were refused.")


def _deadline(timeout: str) -> float | None:
    if not timeout:
        return None
    try:
        return time.monotonic() + units.seconds(timeout)
    except ValueError as error:
        raise exits.Mistake(f"--timeout: {error}") from None
