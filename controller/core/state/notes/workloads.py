"""The notes (database rows other than those of jobs and nodes) about services and workloads."""

from __future__ import annotations

from typing import Any

from controller.core.model.events.attempts import JobEnded
from controller.core.model.events.event import JobEvent
from controller.core.model.events.queued import JobQueued
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.model.services import ServiceOrders
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import State
from controller.core.state.workloads import Workload
from wire.codec import decode, encode


def _service(state: State, name: str) -> Note:
    orders = state.services.get(name)
    return name, None if orders is None else encode(orders)


def _load_services(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.services[name] = decode(ServiceOrders, body, f"notes[{name}]")


def _workload(state: State, number: int) -> Note:
    found = state.workloads.by_id.get(number)
    return str(number), None if found is None else encode(found)


def _workload_of(state: State, event: Any) -> tuple[int, ...]:
    number = state.jobs[event.job].workload if isinstance(event, JobEvent) else event.workload
    return () if number is None else (number,)


def _load_workloads(state: State, notes: list[Note]) -> None:
    loaded = [decode(Workload, body, f"notes[{name}]") for name, body in notes]
    for workload in sorted(loaded, key=lambda each: each.id):
        state.workloads.add(workload)


SERVICES = NoteKind(
    "service",
    keys=lambda state: state.services,
    note=_service,
    load=_load_services,
    events=(ServiceRestarted, ServiceScaled),
    of_event=lambda _state, event: (event.service,),
)

WORKLOADS = NoteKind(
    "workload",
    keys=lambda state: state.workloads.by_id,
    note=_workload,
    load=_load_workloads,
    events=(WorkloadSubmitted, WorkloadRetried, JobQueued, JobEnded),
    of_event=_workload_of,
    listed=lambda state: state.workloads.dropped,
)
