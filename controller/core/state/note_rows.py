"""Notes: the database rows for stored state about other subjects than jobs and nodes, such as quotas,
fair-share weights and reservations.

A note is one row (kind, name, JSON body). Each kind of note has one entry in `NOTE_KINDS`: the events that
change such notes, a function that makes a note, and a function that loads all such notes.

How the changed notes are found
1. For each event of a batch, `changed_notes` calls `of_event`, which yields the notes that the event changes.
2. Some notes change as a side effect of events. For example, the end of a job changes the known run times.
   The objects for tenants, estimates and off-queue usage each keep a set of the notes that changed in this
   way. `changed_notes` also reads these sets (`listed`).
3. `clear_note_changes` empties these sets. Call it after the notes were put into the batch of the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from controller.core.model.events.event import Event
from controller.core.model.rows import NoteRow
from controller.core.state.notes.access import TOKENS
from controller.core.state.notes.estimates import (
    PREDICTION_GUARD,
    RUN_SCORES,
    RUN_TIMES,
    SERVICE_RATES,
    START_SCORES,
)
from controller.core.state.notes.nodes import DATASETS, HOST_KEYS, OFFQUEUE_PROCESSES, OFFQUEUE_STINTS
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.notes.policy import APPLIED_CONFIG, HOURS_IN_FORCE, RESERVATIONS
from controller.core.state.notes.tenants import (
    BUDGETS,
    GPU_HOURS,
    QUOTAS,
    SHARE_LIMITS,
    SHARE_WEIGHTS,
    USAGE_NOTES,
)
from controller.core.state.notes.workloads import SERVICES, WORKLOADS
from controller.core.state.state import State
from wire.codec import dumps

LEARNED = ("runs", "score", "starts", "service-rates", "guard")
"""The kinds of notes with statistics about the run times and starts of jobs that have ended."""


def changed_notes(state: State, batch: Iterable[Event]) -> list[NoteRow]:
    """Return the notes that the events in `batch` changed, with their contents after the events. Notes are
    the database rows for state other than jobs and nodes, such as quotas.

    The state keeps sets of changed notes. This function does not empty these sets; `clear_note_changes` does.

    Cost: one dictionary lookup for each event, plus one row for each changed note.
    """
    keys: dict[NoteKind, dict[Any, None]] = {kind: {} for kind in NOTE_KINDS}
    for event in batch:
        for kind in _KINDS_OF_EVENT.get(type(event), ()):
            keys[kind].update(dict.fromkeys(kind.of_event(state, event) if kind.of_event else ()))
    for kind in NOTE_KINDS:
        if kind.listed is not None:
            keys[kind].update(dict.fromkeys(kind.listed(state)))
    return [_row(kind, kind.note(state, key)) for kind, found in keys.items() for key in found]


def clear_note_changes(state: State) -> None:
    """Empty the state's sets of changed notes (database rows for state other than jobs and nodes, such as
    quotas). Call this after the notes were put into the batch of the next commit.
    """
    state.shares.without_row.clear()
    state.estimates.changed.clear()
    state.estimates.rescored.clear()
    state.estimates.dropped_guard_rows.clear()
    if state.estimates.guard is not None:
        state.estimates.guard.changed.clear()
    state.service_rates.changed.clear()
    state.nodes.datasets.changed.clear()
    state.workloads.dropped.clear()
    state.offqueue.touched.clear()
    state.offqueue.ended.clear()
    state.offqueue.charged.clear()


def all_notes(state: State, *, learned: bool = True) -> list[NoteRow]:
    """Return all notes: the database rows for state other than jobs and nodes, such as quotas. With `learned`
    False, leave out the statistics of ended jobs (the kinds in LEARNED).
    """
    return [
        _row(kind, kind.note(state, key))
        for kind in NOTE_KINDS
        if learned or kind.kind not in LEARNED
        for key in kind.keys(state)
    ]


def load_notes(state: State, rows: Iterable[NoteRow]) -> None:
    """Load notes (database rows for state other than jobs and nodes, such as quotas) into an empty state.
    Skip notes of kinds that this version does not know.
    """
    found: dict[str, list[Note]] = {}
    for row in rows:
        if row.body is not None:
            found.setdefault(row.kind, []).append((row.name, json.loads(row.body)))
    for kind in NOTE_KINDS:
        kind.load(state, found.get(kind.kind, []))


def _row(kind: NoteKind, note: Note) -> NoteRow:
    name, body = note
    return NoteRow(kind.kind, name, None if body is None else dumps(body))


NOTE_KINDS = (
    SHARE_WEIGHTS,
    SHARE_LIMITS,
    QUOTAS,
    GPU_HOURS,
    BUDGETS,
    RESERVATIONS,
    HOURS_IN_FORCE,
    DATASETS,
    SERVICES,
    WORKLOADS,
    RUN_TIMES,
    RUN_SCORES,
    START_SCORES,
    SERVICE_RATES,
    PREDICTION_GUARD,
    USAGE_NOTES,
    HOST_KEYS,
    OFFQUEUE_PROCESSES,
    OFFQUEUE_STINTS,
    APPLIED_CONFIG,
    TOKENS,
)
"""All kinds of notes, in the order in which they are loaded."""

_KINDS_OF_EVENT: dict[type[Any], list[NoteKind]] = {}
for _kind in NOTE_KINDS:
    for _type in _kind.events:
        _KINDS_OF_EVENT.setdefault(_type, []).append(_kind)
