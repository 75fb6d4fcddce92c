"""One kind of note: a database row that is neither a job nor a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from controller.core.state.state import State

Note = tuple[str, Any]
"""The name of a note and its body as data for JSON; the body None deletes the note."""


@dataclass(frozen=True, slots=True, eq=False)
class NoteKind:
    """One kind of note. A note is a database row that is neither a job nor a node. Within its kind, a note is
    identified by a key. `note` is a function that returns the name and the body of the note with this key.
    """

    kind: str
    keys: Callable[[State], Iterable[Any]]
    """Yields the keys of all notes of the kind."""
    note: Callable[[State, Any], Note]
    load: Callable[[State, list[Note]], None]
    """Loads all stored notes of the kind into an empty state. The list may be empty."""
    of_event: Callable[[State, Any], Iterable[Any]] | None = None
    """Yields the keys of the notes that an event changes. Called only for events of the types in `events`."""
    events: tuple[type[Any], ...] = ()
    listed: Callable[[State], Iterable[Any]] | None = None
    """Yields the keys of the notes of this kind that changed as a side effect of events. The state keeps
    these keys in a set.
    """
