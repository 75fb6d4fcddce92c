"""corral queue."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from cli.commands import application, examples
from cli.exits import Mistake
from cli.output import Format, Output, write
from cli.selection import ACTIVE, Mine, pages
from cli.tables import job_table
from wire.api.jobs import JobList
from wire.client import Client
from wire.words import JobState

CLEAR = "\x1b[H\x1b[2J"

app = application()


@app.command(
    epilog=examples(
        "corral queue                          what waits and runs",
        "corral queue --mine --all             all my jobs, ended ones too",
        "corral queue --state failed -o wide   what failed, with everything about it",
        "corral queue --watch                  again every two seconds",
        "corral queue -o json | jq '.jobs[].label'",
    )
)
def queue(
    state: Annotated[
        list[str], typer.Option("--state", metavar="STATE", help="Only jobs in this state; may be repeated.")
    ] = [],  # noqa: B006 - never changed
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Only jobs of this user.")] = "",
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="Only jobs of this profile.")
    ] = "",
    mine: Mine = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two looks of --watch.")
    ] = 2.0,
    output: Output = Format.TABLE,
) -> int:
    """Show the jobs that wait and run, in the order of their ids."""
    client = Client()
    states = _states(state, everything)
    owner = client.health().user if mine else user
    while True:
        body = listing(client, states, owner, profile)
        if watch and output in (Format.TABLE, Format.WIDE):
            write(f"{CLEAR}{time.strftime('%H:%M:%S')}  {len(body.jobs)} jobs, every {interval:g} s\n\n")
        job_table(profiles=any(job.profile for job in body.jobs)).show(output, body.jobs, body)
        if not watch:
            return 0
        sys.stdout.flush()
        time.sleep(interval)


def listing(client: Client, states: Sequence[JobState], user: str, profile: str = "") -> JobList:
    """All pages as one answer."""
    first = client.jobs(states=states, user=user, profile=profile)
    if first.next is None:
        return first
    jobs = (*first.jobs, *pages(client, states, user, first.next, profile))
    return JobList(jobs, first.seq, first.total)


def _states(words: Sequence[str], everything: bool) -> Sequence[JobState]:
    if not words:
        return () if everything else ACTIVE
    known = {known.value: known for known in JobState}
    unknown = [word for word in words if word.upper() not in known]
    if unknown:
        raise Mistake(f"--state: {unknown[0]!r} is not a state", f"States are {', '.join(known).lower()}.")
    return [known[word.upper()] for word in words]
