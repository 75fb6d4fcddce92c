"""corral queue: lists jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated

from cli.exit_codes import CommandError
from cli.flags import option, switch
from cli.jobs.selection import ACTIVE, pages
from cli.output.formats import Format, Output, write
from cli.output.table_columns import job_table
from cli.registry import application, examples
from wire.api.jobs import JobGroup, JobList, JobView
from wire.http.client import Client
from wire.names import SHOWN_STATES, JobState, Reason
from wire.workload.bodies import progress_text

CLEAR = "\x1b[H\x1b[2J"
_STATES = ", ".join(state.value.lower() for state in SHOWN_STATES)

app = application()


@app.command(
    epilog=examples(
        "corral queue                          waiting and running jobs",
        "corral queue --mine --all             all my jobs, also ended ones",
        "corral queue --state failed -o wide   failed jobs, with all columns",
        "corral queue --unfold                 each job of workloads and arrays in its own row",
        "corral queue --watch                  print again every two seconds",
        "corral queue -o json | jq '.jobs[].label'",
    )
)
def queue(
    state: Annotated[
        list[str],
        option("--state", "STATE", f"List only jobs in this state: {_STATES}. May be repeated."),
    ] = [],  # noqa: B006 - never changed
    user: Annotated[str, option("--user", "NAME", "List only jobs of this user.")] = "",
    profile: Annotated[str, option("--profile", "NAME", "List only jobs of this scheduler profile.")] = "",
    mine: Annotated[bool, switch("--mine", "List only your jobs.")] = False,
    everything: Annotated[bool, switch("--all -a", "Also list ended jobs.")] = False,
    fold: Annotated[
        bool | None,
        switch(
            "--fold/--unfold",
            "--fold shows each workload and each array as one row with its progress; --unfold shows one "
            "row for each of their jobs. Default: --fold for tables without --state, otherwise --unfold.",
        ),
    ] = None,
    watch: Annotated[
        bool, switch("--watch", "Print the list again every --interval seconds, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        option("--interval", "SECONDS", "Seconds between two lists with --watch. Default: 2.", min=0.1),
    ] = 2.0,
    output: Output = Format.TABLE,
) -> int:
    """List waiting and running jobs in the order of their ids.

    Each workload and each array is one row, with its progress and its expected end.
    """
    client = Client()
    states = _states(state, everything)
    owner = client.health().user if mine else user
    tables = output in (Format.TABLE, Format.WIDE)
    folded = tables and not state if fold is None else fold
    while True:
        body = listing(client, states, owner, profile, folded=folded)
        if watch and tables:
            count = len(body.jobs) + sum(group.total for group in body.groups)
            clear = CLEAR if sys.stdout.isatty() else ""
            write(f"{clear}{time.strftime('%H:%M:%S')}  {count} jobs, every {interval:g} s\n\n")
        rows = sorted((*body.jobs, *map(_row, body.groups)), key=lambda job: job.id)
        job_table(profiles=any(job.profile for job in body.jobs)).show(output, rows, body)
        if not watch:
            return 0
        sys.stdout.flush()
        time.sleep(interval)


def listing(
    client: Client, states: Sequence[JobState], user: str, profile: str = "", *, folded: bool = False
) -> JobList:
    first = client.jobs(states=states, user=user, profile=profile, folded=folded)
    if first.next is None:
        return first
    jobs = (*first.jobs, *pages(client, states, user, first.next, profile, folded=folded))
    return JobList(jobs, first.seq, first.total, groups=first.groups)


def _row(group: JobGroup) -> JobView:
    """Return the row of a workload or array in the table of jobs. The last column shows the progress of its
    jobs.
    """
    ended = group.completed + group.failed + group.cancelled
    over = JobState.FAILED if group.failed else JobState.COMPLETED
    return JobView(
        id=group.id,
        label=group.label,
        name=group.name,
        user=group.user,
        project=group.project,
        queue=group.queue,
        state=JobState.RUNNING if group.running else JobState.QUEUED if group.waiting else over,
        reason=Reason.NONE,
        detail=progress_text(group.total, ended, group.failed, group.ends_at),
        priority=group.priority,
        gpus=group.gpus,
        nodes=0,
        cpu_milli=0,
        memory_mib=0,
        attempt=0,
        submitted_at=group.submitted_at,
    )


def _states(words: Sequence[str], everything: bool) -> Sequence[JobState]:
    if not words:
        return () if everything else ACTIVE
    known = {known.value: known for known in SHOWN_STATES}
    if JobState.PREEMPTED.value in map(str.upper, words):
        raise CommandError(
            "--state: a preempted job is queued again at once, so 'preempted' is not a state",
            "See corral queue --state queued; corral job show JOB lists how often the job was preempted.",
        )
    unknown = [word for word in words if word.upper() not in known]
    if unknown:
        raise CommandError(
            f"--state: {unknown[0]!r} is not a state", f"States are {', '.join(known).lower()}."
        )
    return [known[word.upper()] for word in words]
