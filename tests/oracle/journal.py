"""Checks that the journal is unbroken and agrees with the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from controller.core.accounting import hours, wait_alarms
from controller.core.invariants import find_violations
from controller.core.model.events.kinds import event_of
from controller.core.model.rows import JobRow, JournalEntry, NodeRow, NoteRow
from controller.core.state.apply import apply
from controller.core.state.job_and_node_rows import job_row, node_row
from controller.core.state.note_rows import all_notes
from controller.core.state.state import State
from controller.store.errors import StoreFailure
from controller.store.store import Store
from tests.engine_harness import PIPELINE

PAGE = 5_000
EVERYTHING = 1_000_000
NOT_JOURNALLED = {hours.NOTE, wait_alarms.NOTE}
"""The kinds of notes that no event writes: figures of reports, which may be lost."""


def problems(url: str) -> list[str]:
    """The problems of a closed store."""
    try:
        with closing(Store.open(url, keep=EVERYTHING)) as store:
            return [*store.verify().problems, *_told_otherwise(store)]
    except StoreFailure as failure:
        return [failure.message]


def _told_otherwise(store: Store) -> Iterator[str]:
    state = State(PIPELINE.order, keep_ended=EVERYTHING)
    for entry in _entries(store):
        apply(state, event_of(entry.kind, entry.body))
    yield from find_violations(state)
    loaded = store.load()
    kept: dict[object, JobRow | NodeRow | NoteRow] = {row.id: row for row in [*loaded.jobs, *loaded.ended]}
    kept |= {row.name: row for row in loaded.nodes}
    kept |= {(row.kind, row.name): row for row in loaded.notes if row.kind not in NOT_JOURNALLED}
    told: dict[object, JobRow | NodeRow | NoteRow] = {
        job.id: job_row(job, with_spec=True) for job in state.jobs.values()
    }
    told |= {node.name: node_row(node) for node in state.nodes}
    told |= {(note.kind, note.name): note for note in all_notes(state)}
    for name in kept.keys() | told.keys():
        if kept.get(name) != told.get(name):
            yield f"{name}: the journal tells {told.get(name)}, the row is {kept.get(name)}"


def _entries(store: Store) -> Iterator[JournalEntry]:
    seq = 0
    while page := store.journal(seq, PAGE):
        yield from page
        seq = page[-1].seq
