"""The journal under oath: unbroken, and telling the same story as the rows beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from controller.core.apply import apply
from controller.core.check import check
from controller.core.events import event_of
from controller.core.notes import notes_of
from controller.core.records import job_row, node_row
from controller.core.rows import Entry, JobRow, NodeRow, NoteRow
from controller.core.state import State
from controller.store.failures import StoreFailure
from controller.store.store import Store
from tests.worlds import PIPELINE

PAGE = 5_000
EVERYTHING = 1_000_000


def problems(url: str) -> list[str]:
    """What is wrong with a store that nobody has open."""
    try:
        with closing(Store.open(url, keep=EVERYTHING)) as store:
            return [*store.verify().problems, *_told_otherwise(store)]
    except StoreFailure as failure:
        return [failure.message]


def _told_otherwise(store: Store) -> Iterator[str]:
    state = State(PIPELINE.order, keep_ended=EVERYTHING)
    for entry in _entries(store):
        apply(state, event_of(entry.kind, entry.body))
    yield from check(state)
    loaded = store.load()
    kept: dict[object, JobRow | NodeRow | NoteRow] = {row.id: row for row in [*loaded.jobs, *loaded.ended]}
    kept |= {row.name: row for row in loaded.nodes}
    kept |= {(row.kind, row.name): row for row in loaded.notes}
    told: dict[object, JobRow | NodeRow | NoteRow] = {
        job.id: job_row(job, with_spec=True) for job in state.jobs.values()
    }
    told |= {node.name: node_row(node) for node in state.nodes}
    told |= {(note.kind, note.name): note for note in notes_of(state)}
    for name in kept.keys() | told.keys():
        if kept.get(name) != told.get(name):
            yield f"{name}: the journal tells {told.get(name)}, the row is {kept.get(name)}"


def _entries(store: Store) -> Iterator[Entry]:
    seq = 0
    while page := store.journal(seq, PAGE):
        yield from page
        seq = page[-1].seq
