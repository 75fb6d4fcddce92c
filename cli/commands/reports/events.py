"""corral events: shows the events of the journal as sentences."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

from cli.completion import jobs as known_jobs
from cli.flags import option, switch
from cli.jobs.selection import select_one
from cli.jobs.wait import PAUSE_S, RetryLimit
from cli.output.formats import Column, Format, Output, Table, write_data
from cli.output.stderr import print_note
from cli.output.table_columns import clock, event_table
from cli.registry import application, examples
from wire.api.service.access import AuditPage, AuditRecord
from wire.api.service.cluster import EventList, EventView
from wire.http.client import Client, Unreachable

app = application()


@app.command(
    epilog=examples(
        "corral events                the newest events",
        "corral events -f             follow new events",
        "corral events --job 7        all events of one job",
        "corral events -f -o json     one event a line, for programs",
        "corral events --audit        changes and refusals, for admins",
    )
)
def events(
    follow: Annotated[
        bool, switch("--follow -f", "Keep running, and show each new event as it happens.")
    ] = False,
    job: Annotated[
        str,
        option("--job", "JOB", "Show only events of this job.", autocompletion=known_jobs),
    ] = "",
    count: Annotated[
        int,
        option("--lines -n", "N", "Number of newest events to show. Default: 30.", min=0, max=100_000),
    ] = 30,
    after: Annotated[
        int | None,
        option(
            "--after",
            "SEQ",
            "Show all events after the event with this number (the field seq of -o json), instead of the "
            "newest events.",
            min=0,
        ),
    ] = None,
    audit: Annotated[
        bool,
        switch(
            "--audit", "Show the audit log instead: changes and refusals, each with its caller. Admins only."
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    "Show past events of the cluster, or new events as they happen (--follow)."
    client = Client()
    if audit:
        return _audit(client, count, after, output)
    about = select_one(client, job).id if job else None
    seq = client.health().seq
    start = after if after is not None else 0 if about is not None else max(0, seq - count)
    known = list(_past_events(client, start, seq, about))
    if after is None:
        known = known[max(0, len(known) - count) :]
    if not follow:
        begins = client.events(after=seq, limit=1).begins
        event_table().show(output, known, EventList(tuple(known), seq, begins))
        if start < begins and (after is not None or about is not None):
            print_note(
                f"Entries up to {begins} were deleted: [retention] in scheduler.toml sets how long "
                "they are kept."
            )
        return 0
    _line(known, output, heading=True)
    for batch in _new_events(seq):
        _line([event for event in batch if about in (None, event.job)], output, heading=False)
    return 0


def _audit(client: Client, count: int, after: int | None, output: Format) -> int:
    """Show the entries of the audit log after number `after`, or the newest `count` entries."""
    start = after if after is not None else max(0, client.audit(limit=1).seq - count)
    body = client.audit(start)
    entries = list(body.entries)
    while entries and len(entries) < body.seq - start:
        page = client.audit(entries[-1].seq)
        if not page.entries:
            break
        entries += page.entries
    body = AuditPage(tuple(entries), body.seq, body.head, body.broken_at)
    audit_table().show(output, body.entries, body)
    if body.broken_at is not None:
        print_note(f"warning: entry {body.broken_at} does not match the entry before it: the log was changed")
    print_note(f"entry {body.seq} has the hash {body.head}")
    return 0


def audit_table() -> Table[AuditRecord]:
    return Table(
        [
            Column("NUMBER", lambda each: str(each.seq), right=True, rank=2),
            Column("TIME", lambda each: clock(each.at)),
            Column("CALLER", lambda each: each.caller, narrow=8),
            Column("TOKEN", lambda each: each.token, rank=2),
            Column("FROM", lambda each: each.address, rank=1),
            Column("ACTION", lambda each: each.action, narrow=12),
            Column("OBJECT", lambda each: each.object, narrow=8),
            Column("OUTCOME", lambda each: each.outcome, narrow=12),
        ],
        lambda each: str(each.seq),
        kind=AuditRecord,
    )


def _past_events(client: Client, start: int, seq: int, job: int | None) -> Iterator[EventView]:
    """Yield the events after number `start`, up to number `seq` of the journal. The events are requested page
    by page.
    """
    while start < seq:
        page = client.events(after=start, job=job)
        if not page.events:
            return
        yield from (event for event in page.events if event.seq <= seq)
        start = page.events[-1].seq


def _new_events(seq: int) -> Iterator[Sequence[EventView]]:
    """Yield the new events after number `seq` of the journal. If the controller restarts, no event is lost or
    repeated.
    """
    retries = RetryLimit()
    while True:
        client = Client()
        try:
            for batch in client.stream(seq, rows=False):
                retries.connected()
                if batch is not None:
                    seq = batch.seq
                    yield batch.events
            # The stream ends when the controller stops. Wait before connecting again, because a restart of
            # the controller takes time.
            time.sleep(PAUSE_S)
        except Unreachable as lost:
            retries.disconnected(lost)
        finally:
            client.close()


def _line(events: Sequence[EventView], output: Format, *, heading: bool) -> None:
    """Print events, one on each line. With `heading`, print the column titles first. JSON also has one line
    for each event, so that a program can read each event at once.
    """
    if output.is_data:
        for event in events:
            write_data(output, event, indented=False)
    elif events or heading:
        event_table().show(output, events, heading=heading)
    sys.stdout.flush()
