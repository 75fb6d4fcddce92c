"""corral events."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from cli.commands import application, examples
from cli.complete import jobs as known_jobs
from cli.follow import PAUSE_S, Patience
from cli.output import Format, Output, write_json
from cli.selection import one
from cli.tables import event_table
from wire.api.cluster import EventList, EventView
from wire.client import Client, Unreachable

app = application()


@app.command(
    epilog=examples(
        "corral events                the newest of what happened",
        "corral events -f             and what happens from now on",
        "corral events --job 7        the life of one job",
        "corral events -f -o json     one event a line, for programs",
    )
)
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens.")] = False,
    job: Annotated[
        str, typer.Option("--job", metavar="JOB", help="Only this job.", autocompletion=known_jobs)
    ] = "",
    count: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, max=100_000, help="How many of the newest.")
    ] = 30,
    after: Annotated[
        int | None, typer.Option("--after", metavar="SEQ", min=0, help="All behind this position instead.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Show what happened; follow what happens."""
    client = Client()
    about = one(client, job).id if job else None
    seq = client.health().seq
    start = after if after is not None else 0 if about is not None else max(0, seq - count)
    known = list(_until(client, start, seq, about))
    if after is None:
        known = known[max(0, len(known) - count) :]
    if not follow:
        event_table().show(output, known, EventList(tuple(known), seq))
        return 0
    _line(known, output, heading=True)
    for batch in _coming(seq):
        _line([event for event in batch if about in (None, event.job)], output, heading=False)
    return 0


def _until(client: Client, start: int, seq: int, job: int | None) -> Iterator[EventView]:
    """The events behind `start`, page by page, up to `seq`."""
    while start < seq:
        page = client.events(after=start, job=job)
        if not page.events:
            return
        yield from (event for event in page.events if event.seq <= seq)
        start = page.events[-1].seq


def _coming(seq: int) -> Iterator[Sequence[EventView]]:
    """What happens behind `seq`, over restarts of the controller."""
    patience = Patience()
    while True:
        client = Client()
        try:
            for batch in client.stream(seq, rows=False):
                patience.heard()
                if batch is not None:
                    seq = batch.seq
                    yield batch.events
            time.sleep(PAUSE_S)  # ended in order: the controller stops
        except Unreachable as lost:
            patience.lost(lost)
        finally:
            client.close()


def _line(events: Sequence[EventView], output: Format, *, heading: bool) -> None:
    """One event a line; JSON too, so that a program can read them as they come."""
    if output is Format.JSON:
        for event in events:
            write_json(event, indented=False)
    elif events or heading:
        event_table().show(output, events, heading=heading)
    sys.stdout.flush()
