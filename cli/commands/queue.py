"""corral queue: lists jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from cli.exit_codes import CommandError
from cli.flags import option, switch, with_flag_groups
from cli.jobs.job_filter import JobFilter
from cli.jobs.selection import ACTIVE, pages
from cli.output.formats import Format, Output
from cli.output.listing import list_command
from cli.output.table_columns import job_table
from cli.registry import application, examples
from wire.api.jobs import JobGroup, JobList, JobView, QueuePlace
from wire.http.client import Client
from wire.names import SHOWN_STATES, JobState, Reason
from wire.workload.bodies import progress_text

_STATES = ", ".join(state.value.lower() for state in SHOWN_STATES)

SORTS: Mapping[str, Callable[[JobView], Any]] = {
    "id": lambda job: job.id,
    "name": lambda job: job.name,
    "user": lambda job: job.user,
    "project": lambda job: job.project,
    "queue": lambda job: job.queue,
    "state": lambda job: job.state.value,
    "priority": lambda job: job.priority,
    "gpus": lambda job: job.gpus,
    "submitted": lambda job: job.submitted_at,
    "started": lambda job: math.inf if job.started_at is None else job.started_at,
    "limit": lambda job: math.inf if job.time_limit_s is None else job.time_limit_s,
}
"""A dict from each KEY of --sort to the function that returns the value to sort by. `start` is left out,
because it needs the places of waiting jobs in the queue.
"""

app = application()


@app.command(
    epilog=examples(
        "corral queue                          waiting and running jobs",
        "corral queue --mine --all             all my jobs, also ended ones",
        "corral queue --state failed -o wide   failed jobs, with all columns",
        "corral queue --project vision --sort -gpus      largest jobs first",
        "corral queue --node gpu01 --columns job,user,gpus,limit",
        "corral queue --unfold                 each job of workloads and arrays in its own row",
        "corral queue --watch                  print again every two seconds",
        "corral queue -o json | jq '.jobs[].label'",
    )
)
@with_flag_groups
@list_command(sort=False)
def queue(
    state: Annotated[
        list[str],
        option("--state", "STATE", f"List only jobs in this state: {_STATES}. May be repeated."),
    ] = [],  # noqa: B006 - never changed
    only: JobFilter = JobFilter(),
    profile: Annotated[str, option("--profile", "NAME", "List only jobs of this scheduler profile.")] = "",
    mine: Annotated[bool, switch("--mine", "List only your jobs.")] = False,
    everything: Annotated[bool, switch("--all -a", "Also list ended jobs.")] = False,
    fold: Annotated[
        bool | None,
        switch(
            "--fold/--unfold",
            "--fold shows each workload and each array as one row with its progress; --unfold shows one row"
            " for each job. Default: --fold for tables without --state and --node, otherwise --unfold.",
        ),
    ] = None,
    sort: Annotated[
        str,
        option(
            "--sort",
            "KEY",
            f"Sort the rows by start, {', '.join(SORTS)}. A '-' before the key reverses the order. Default: "
            "start.",
        ),
    ] = "start",
    output: Output = Format.TABLE,
) -> int:
    """List waiting and running jobs in the order of their starts.

    Jobs that have started come first. Then come waiting jobs in the order in which the scheduler tries these
    jobs, with their places in the queue and their expected starts. Jobs that are held, or wait for other jobs
    or for a time, come last. Each workload and each array is one row, with its progress and its expected end.
    """
    client = Client()
    states = _states(state, everything)
    owner = client.health().user if mine else only.user
    tables = output in (Format.TABLE, Format.WIDE)
    folded = tables and not state and not only.node if fold is None else fold

    def wanted(job: JobView) -> bool:
        nodes = (held.node for held in job.held)
        return only.selects(job.user, job.project, job.queue, job.name, nodes)

    if sort.removeprefix("-") not in ("start", *SORTS):
        raise CommandError(f"--sort: {sort!r} is not a key", f"Keys are start, {', '.join(SORTS)}.")
    body = listing(client, states, owner, profile, folded=folded)
    groups = {group.id: group for group in body.groups if wanted(_row(group))}
    body = replace(body, jobs=tuple(filter(wanted, body.jobs)), groups=tuple(groups.values()))
    places = {each.job: each for each in body.places}
    places |= {
        group.id: QueuePlace(group.id, group.place, group.starts_at)
        for group in groups.values()
        if group.place is not None
    }
    key = _sort_key(sort, places)
    rows = sorted((*body.jobs, *map(_row, body.groups)), key=key, reverse=sort.startswith("-"))
    body = replace(body, jobs=tuple(row for row in rows if row.id not in groups))
    job_table(profiles=any(job.profile for job in body.jobs), places=places).show(output, rows, body)
    return 0


def _sort_key(sort: str, places: Mapping[int, QueuePlace]) -> Callable[[JobView], Any]:
    """Return the function that returns the sort key of a row. Rows with equal keys are in the order of their
    ids.

    If `sort` is start or -start, the keys put jobs that have started first, then waiting jobs by place in the
    queue, then all other jobs.
    """
    word = sort.removeprefix("-")
    if word != "start":
        value = SORTS[word]
        return lambda job: (value(job), job.id)

    def start(job: JobView) -> tuple[int, float, int]:
        if job.started_at is not None or job.state is not JobState.QUEUED:
            return 0, job.started_at or job.submitted_at, job.id
        place = places.get(job.id)
        return (2, 0.0, job.id) if place is None else (1, place.place, job.id)

    return start


def listing(
    client: Client, states: Sequence[JobState], user: str, profile: str = "", *, folded: bool = False
) -> JobList:
    first = client.jobs(states=states, user=user, profile=profile, folded=folded, places=True)
    if first.next is None:
        return first
    jobs = (*first.jobs, *pages(client, states, user, first.next, profile, folded=folded))
    return JobList(jobs, first.seq, first.total, groups=first.groups, places=first.places)


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
