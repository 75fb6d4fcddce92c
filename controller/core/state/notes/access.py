"""The notes (database rows other than those of jobs and nodes) about API tokens."""

from __future__ import annotations

from typing import Any

from controller.core.model.events.access import TokenCreated, TokenRevoked
from controller.core.model.tokens import TokenRecord
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import State
from wire.codec import decode, encode


def _token(state: State, id: str) -> Note:
    token = state.tokens.by_id.get(id)
    return id, None if token is None else encode(token)


def _token_of(_state: State, event: Any) -> tuple[str]:
    return (event.token.id if isinstance(event, TokenCreated) else event.id,)


def _load_tokens(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.tokens.add(decode(TokenRecord, body, f"notes[{name}]"))


TOKENS = NoteKind(
    "token",
    keys=lambda state: state.tokens.by_id,
    note=_token,
    load=_load_tokens,
    events=(TokenCreated, TokenRevoked),
    of_event=_token_of,
)
