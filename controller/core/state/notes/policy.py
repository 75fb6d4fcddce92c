"""The notes (database rows other than those of jobs and nodes) about reservations, the tables [hours.NAME] in
force, and the applied configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.events.tenants import HoursChanged
from controller.core.reservations.reservations import Reservation
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import AppliedConfig, State
from wire.cluster.reservation import ReservationSpec
from wire.codec import decode, encode


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """The JSON body of the database row of a reservation."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    by: str
    began: bool


def _reservation(state: State, name: str) -> Note:
    each = state.reservations.by_name.get(name)
    if each is None:
        return name, None
    return name, encode(ReservationRecord(each.spec, each.nodes, each.starts_at, each.by, each.began))


def _reservation_of(_state: State, event: Any) -> tuple[str]:
    return (event.asked.name if isinstance(event, ReservationMade) else event.reservation,)


def _load_reservations(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        each = decode(ReservationRecord, body, f"notes[{name}]")
        state.reservations.add(Reservation(each.spec, each.nodes, each.starts_at, each.by, each.began))


def _load_hours(state: State, notes: list[Note]) -> None:
    for _, body in notes:
        state.follow_hours(tuple(body))


def _config(state: State, _key: str) -> Note:
    return "applied", None if state.config is None else encode(state.config)


def _load_config(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.config = decode(AppliedConfig, body, f"notes[{name}]")


RESERVATIONS = NoteKind(
    "reservation",
    keys=lambda state: state.reservations.by_name,
    note=_reservation,
    load=_load_reservations,
    events=(
        ReservationMade,
        ReservationBegan,
        ReservationEnded,
        ReservationCancelled,
    ),
    of_event=_reservation_of,
)

HOURS_IN_FORCE = NoteKind(
    "hours",
    keys=lambda state: ("in-force",) if state.hours else (),
    note=lambda state, name: (name, list(state.hours) or None),
    load=_load_hours,
    events=(HoursChanged,),
    of_event=lambda _state, _event: ("in-force",),
)

APPLIED_CONFIG = NoteKind(
    "config",
    keys=lambda state: () if state.config is None else ("applied",),
    note=_config,
    load=_load_config,
    events=(ConfigApplied,),
    of_event=lambda _state, _event: ("applied",),
)
