"""What is neither a job nor a node, to rows and back: quotas that were set, and what tenants have spent."""

from __future__ import annotations

import json
from collections.abc import Iterable

from controller.core.accounts import Key
from controller.core.events import AttemptExited, Event, QuotaSet, QuotaUnset
from controller.core.rows import NoteRow
from controller.core.state import State
from wire.codec import decode, dumps, encode
from wire.quota import Quota

QUOTA, SPENT = "quota", "spent"


def noted(state: State, events: Iterable[Event]) -> list[NoteRow]:
    """The notes that a batch of events changed, as they are now."""
    quotas: dict[Key, None] = {}
    spent: dict[Key, None] = {}
    for event in events:
        if isinstance(event, AttemptExited):
            job = state.jobs[event.job]
            if job.spec.gpus:
                spent.update((account.key, None) for account in state.accounts.of(job.user, job.spec))
        elif isinstance(event, QuotaSet | QuotaUnset):
            quotas[event.scope, event.name] = None
    return [*(_quota_note(state, key) for key in quotas), *(_spent_note(state, key) for key in spent)]


def notes_of(state: State) -> list[NoteRow]:
    """Every note there is."""
    spent = [key for key, account in state.accounts.by_key.items() if account.spent]
    return [
        *(_quota_note(state, key) for key in state.quotas.edits),
        *(_spent_note(state, key) for key in spent),
    ]


def recall(state: State, notes: Iterable[NoteRow]) -> None:
    """Fill a state from notes; kinds of other versions are passed over."""
    for note in notes:
        scope, _, name = note.name.partition("/")
        body = json.loads(note.body or "null")
        if note.kind == QUOTA:
            state.quotas.edit((scope, name), decode(Quota, body, f"notes[{note.name}]"))
        elif note.kind == SPENT:
            state.accounts.account((scope, name)).remember({int(hour): part for hour, part in body.items()})


def _quota_note(state: State, key: Key) -> NoteRow:
    quota = state.quotas.edits.get(key)
    return NoteRow(QUOTA, "/".join(key), None if quota is None else dumps(encode(quota)))


def _spent_note(state: State, key: Key) -> NoteRow:
    spent = {str(hour): part for hour, part in state.accounts.account(key).spent.items()}
    return NoteRow(SPENT, "/".join(key), dumps(spent) if spent else None)
