"""corral job …: one job, or several."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from cli import exits, facts, units
from cli.asked import Asked, asking
from cli.bulk import each
from cli.changes import changed, changes_of
from cli.commands import application, examples
from cli.messages import note
from cli.output import Format, Output, write_facts, write_json
from cli.selection import Job, Jobs, Mine, one, select
from cli.tables import job_table
from wire.api import JobView
from wire.client import Client, JobName

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
    return _each(jobs, mine, dry_run, output, lambda client: client.cancel)


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
    return _each(jobs, mine, dry_run, output, lambda client: lambda job: changed(client, job, changes))


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
    return _each(jobs, mine, dry_run, output, lambda client: client.hold)


@app.command(epilog=examples("corral job release 7", "corral job release --mine"))
def release(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Let held jobs start again."""
    return _each(jobs, mine, dry_run, output, lambda client: client.release)


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
    return _each(jobs, mine, dry_run, output, lambda client: lambda job: client.preempt(job, hold=hold))


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


def _each(
    words: list[str],
    mine: bool,
    dry_run: bool,
    output: Format,
    action: Callable[[Client], Callable[[JobName], JobView]],
) -> int:
    """Do it to every job that is meant; what fails for one is said, and the others are done."""
    client = Client()
    meant, unknown = each(words or [""], lambda word: select(client, [word] if word else [], mine))
    found = list({job.id: job for jobs in meant for job in jobs}.values())
    act = action(client)
    done, refused = (found, []) if dry_run else each(found, lambda job: act(job.id))
    if output is Format.TABLE and not dry_run:
        for job in done:
            note(facts.line_of(job))
    else:
        job_table().show(output, done)
    codes = unknown + refused
    if len(done) + len(codes) != 1 and not dry_run:
        note(f"{len(done)} done, {len(codes)} failed")
    return codes[0] if codes else 0


def _deadline(timeout: str) -> float | None:
    if not timeout:
        return None
    try:
        return time.monotonic() + units.seconds(timeout)
    except ValueError as error:
        raise exits.Mistake(f"--timeout: {error}") from None
