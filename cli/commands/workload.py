"""corral workload: submits files of tasks with dependencies, and shows, cancels and retries workloads."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated

from cli import exit_codes
from cli.exit_codes import CommandError
from cli.flags import argument, option, switch
from cli.jobs.selection import newest
from cli.jobs.wait import RetryLimit
from cli.output.formats import Column, Format, Output, Table, show_one, write, write_data
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import application, examples
from cli.spec.submitter_environment import submitter
from cli.workloads.workload_file import workload_of
from wire import amounts
from wire.api.job_selection import LAST
from wire.http.client import Client, Unreachable
from wire.names import JobState
from wire.text import counted
from wire.workload.bodies import PlannedJob, TaskView, WorkloadAnswer, WorkloadView, progress_text

POLL_S = 1.0

AsUser = Annotated[
    str,
    option("--as-user", "USER", "Submit the jobs as this user. Only operators may do this. Default: you."),
]
Number = Annotated[
    str,
    argument(
        "WORKLOAD", "Number of the workload, from 'corral workload list', or last (your newest workload)."
    ),
]
File = Annotated[str, argument("FILE", "Workload file: .toml, .yaml, .yml or .json.")]

app = application(
    "Submit files of tasks with dependencies; show, wait for, cancel and retry workloads.",
    epilog=examples("corral workload submit sweep.toml", "corral workload show 3"),
)


@dataclass(frozen=True)
class _Planned:
    """A row of a dry run: one job that a submit would queue."""

    task: str
    index: int | None
    name: str
    after: tuple[str, ...]
    gpus: float
    command: tuple[str, ...]


WORKLOADS: Table[WorkloadView] = Table(
    (
        Column("WORKLOAD", lambda each: str(each.id)),
        Column("NAME", lambda each: each.name or "-", rank=1, narrow=8),
        Column("USER", lambda each: each.user, rank=2),
        Column("STATE", lambda each: each.state.value),
        Column("PROGRESS", lambda each: progress_of(each)),
        Column("WAITING", lambda each: str(each.waiting), rank=5, right=True),
        Column("RUNNING", lambda each: str(each.running), rank=4, right=True),
        Column("SUBMITTED", lambda each: clock(each.submitted_at), rank=3),
    ),
    lambda each: str(each.id),
    kind=WorkloadView,
)
TASKS: Table[TaskView] = Table(
    (
        Column("TASK", lambda task: task.name, narrow=8),
        Column("JOBS", lambda task: str(task.total), right=True),
        Column("WAITING", lambda task: str(task.waiting), right=True),
        Column("RUNNING", lambda task: str(task.running), right=True),
        Column("COMPLETED", lambda task: str(task.completed), right=True),
        Column("FAILED", lambda task: str(task.failed), right=True),
        Column("CANCELLED", lambda task: str(task.cancelled), right=True),
        Column("AFTER", lambda task: ",".join(task.after) or "-", rank=2, narrow=8),
        Column("IDS", lambda task: " ".join(task.jobs) or "-", rank=1, narrow=8),
    ),
    lambda task: task.name,
    kind=TaskView,
)
PLANNED: Table[_Planned] = Table(
    (
        Column("TASK", lambda job: job.task),
        Column("NAME", lambda job: job.name, rank=2, narrow=8),
        Column("AFTER", lambda job: ",".join(job.after) or "-", rank=1, narrow=8),
        Column("GPUS", lambda job: f"{job.gpus:g}", right=True),
        Column("COMMAND", lambda job: " ".join(job.command), narrow=12),
    ),
    lambda job: job.name,
    kind=_Planned,
)


def progress_of(each: WorkloadView) -> str:
    ended = each.completed + each.failed + each.cancelled
    return progress_text(each.total, ended, each.failed, each.ends_at)


@app.command(
    epilog=examples(
        "corral workload submit sweep.toml",
        "corral workload submit --dry-run sweep.toml",
        "corral workload submit --wait sweep.toml",
    )
)
def submit(
    file: File,
    dry_run: Annotated[
        bool, switch("--dry-run", "Submit nothing. Only show the jobs of the workload.")
    ] = False,
    wait: Annotated[bool, switch("--wait", "Wait until all jobs have ended.")] = False,
    key: Annotated[
        str,
        option(
            "--key",
            "TEXT",
            "Idempotency key. A second submit with the same key queues nothing, and shows the first "
            "workload.",
        ),
    ] = "",
    as_user: AsUser = "",
    output: Output = Format.TABLE,
) -> int:
    """Submit all jobs of a workload file. If the controller refuses one of the jobs, none is submitted."""
    spec = workload_of(file, os.environ, submitter())
    client = Client()
    if dry_run:
        jobs = client.preview_workload(spec, as_user=as_user)
        if output.is_data:
            write_data(output, jobs)
        else:
            PLANNED.show(output, [_planned(job) for job in jobs.jobs])
        return 0
    answer = client.submit_workload(spec, key=key, as_user=as_user)
    number = answer.workload.id
    if output.is_data:
        write_data(output, answer)
    else:
        write(f"{number}\n")
    if wait:
        sys.stdout.flush()
        return _wait(number, None)
    if sys.stdout.isatty():
        queued = counted(len(answer.jobs), "job")
        print_note(f"Queued {queued}. Show the workload with: corral workload show {number}")
    return 0


def _planned(job: PlannedJob) -> _Planned:
    return _Planned(job.task, job.index, job.spec.name, job.after, job.spec.gpus, job.spec.command)


@app.command(
    name="list",
    epilog=examples(
        "corral workload list",
        "corral workload list --mine --all",
        "corral workload list --user ada --name 'sweep-*'",
    ),
)
@list_command
def list_all(
    user: Annotated[str, option("--user", "NAME", "List only workloads of this user. Default: all.")] = "",
    name: Annotated[
        str,
        option(
            "--name",
            "PATTERN",
            "List only workloads whose names match the pattern, for example 'sweep-*'. Default: all.",
        ),
    ] = "",
    mine: Annotated[bool, switch("--mine", "List only your workloads.")] = False,
    everything: Annotated[bool, switch("--all -a", "Also list workloads whose jobs have all ended.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """List workloads with their progress."""
    client = Client()
    body = client.workloads(user=client.health().user if mine else user, everything=everything)
    body = replace(
        body, workloads=tuple(each for each in body.workloads if not name or fnmatchcase(each.name, name))
    )
    WORKLOADS.show(output, body.workloads, body)
    return 0


@app.command(epilog=examples("corral workload show 3", "corral workload show 3 -o json"))
def show(workload: Number, output: Output = Format.TABLE) -> int:
    """Show a workload: its progress, its expected end, and its tasks with their jobs."""
    client = Client()
    _show(client.workload(_number(client, workload)), output)
    return 0


def _show(seen: WorkloadView, output: Format) -> None:
    facts = (
        ("workload", f"{seen.id} ({seen.name})" if seen.name else str(seen.id)),
        ("user", seen.user),
        ("state", seen.state.value),
        ("progress", progress_of(seen)),
        ("submitted", clock(seen.submitted_at)),
        ("ended", "" if seen.ended_at is None else clock(seen.ended_at)),
        ("at a time", "" if seen.max_parallel is None else counted(seen.max_parallel, "job")),
        ("on failure", seen.on_failure.value),
        ("retries", str(seen.retries) if seen.retries else ""),
    )
    show_one(output, seen, facts, str(seen.id))
    if output in (Format.TABLE, Format.WIDE):
        write("\n")
        TASKS.show(output, seen.tasks)


@app.command(epilog=examples("corral workload wait last", "corral workload wait 3 --timeout 2h"))
def wait(
    workload: Number,
    timeout: Annotated[
        str,
        option(
            "--timeout",
            "TIME",
            "Stop waiting after this time (e.g. 2h), and exit with code 6. The jobs continue. "
            "Default: no limit.",
        ),
    ] = "",
) -> int:
    """Wait until all jobs of a workload have ended.

    The exit code is 0 if all jobs have completed, 1 if a job has failed or was cancelled, and 6 after
    --timeout.
    """
    try:
        deadline = time.monotonic() + amounts.seconds(timeout) if timeout else None
    except ValueError as error:
        raise CommandError(f"--timeout: {error}") from None
    client = Client()
    return _wait(client.workload(_number(client, workload)).id, deadline)


def _wait(number: int, deadline: float | None) -> int:
    retries = RetryLimit(deadline)
    while True:
        client = Client()
        try:
            [seen] = client.workloads(everything=True, after=number - 1, limit=1).workloads or [None]
            if seen is None or seen.id != number:
                raise CommandError(f"workload {number} is no longer known", code=exit_codes.NOT_FOUND)
            retries.connected()
            if seen.ended_at is not None:
                print_note(f"corral: workload {number} is {seen.state.value}: {progress_of(seen)}")
                return 0 if seen.state is JobState.COMPLETED else exit_codes.FAILED
            time.sleep(POLL_S)
        except Unreachable as lost:
            retries.disconnected(lost)
        finally:
            client.close()


@app.command(epilog=examples("corral workload cancel 3"))
def cancel(workload: Number, output: Output = Format.TABLE) -> int:
    """Cancel all jobs of a workload that have not ended."""
    client = Client()
    return _report(client.cancel_workload(_number(client, workload)), "cancelled", output)


@app.command(epilog=examples("corral workload retry 3 --failed", "corral workload retry 3 --cancelled"))
def retry(
    workload: Number,
    failed: Annotated[  # noqa: ARG001 - the default
        bool,
        switch(
            "--failed",
            "Run failed jobs again, and jobs that were cancelled because other jobs failed. This is the "
            "default.",
        ),
    ] = False,
    cancelled: Annotated[
        bool, switch("--cancelled", "Also run jobs again that a user or an operator has cancelled.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Queue new jobs in place of failed jobs, and in place of jobs that did not run because other jobs
    failed.
    """
    client = Client()
    answer = client.retry_workload(_number(client, workload), cancelled=cancelled)
    return _report(answer, "queued again", output)


def _number(client: Client, word: str) -> str:
    """Return the number of the workload that the user named by its number or by the word last."""
    if word != LAST:
        return word
    me = client.health().user

    def first_after(place: int) -> WorkloadView | None:
        found = client.workloads(user=me, everything=True, after=place, limit=1)
        return next(iter(found.workloads), None)

    last = newest(first_after)
    if last is None:
        raise CommandError(
            "you have no workload yet", "Submit one: corral workload submit FILE", exit_codes.NOT_FOUND
        )
    return str(last.id)


def _report(answer: WorkloadAnswer, done: str, output: Format) -> int:
    if output.is_data:
        write_data(output, answer)
    elif output in (Format.TABLE, Format.WIDE):
        write(f"workload {answer.workload.id}: {counted(len(answer.jobs), 'job')} {done}\n")
    else:
        WORKLOADS.show(output, [answer.workload])
    return 0
