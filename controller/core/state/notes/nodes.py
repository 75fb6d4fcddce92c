"""The notes (database rows other than those of jobs and nodes) about data sets on nodes, host keys, and
off-queue processes (GPU processes outside of jobs).
"""

from __future__ import annotations

from dataclasses import astuple

from controller.core.fairshare.offqueue_usage import OffQueueUse
from controller.core.model.events.nodes import HostKeyPinned, NodeRemoved
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import State


def _load_datasets(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.nodes.datasets.load(name, body)


def _load_host_keys(state: State, notes: list[Note]) -> None:
    state.host_keys.update(notes)


def _open_stints(state: State, node: str) -> Note:
    return node, [astuple(state.offqueue.open[key]) for key in state.offqueue.on(node)] or None


def _load_open_stints(state: State, notes: list[Note]) -> None:
    for _, body in notes:
        stints = [OffQueueUse(*each) for each in body]
        state.offqueue.open.update(((each.node, each.uuid, each.user), each) for each in stints)


def _ended_stint(state: State, number: int) -> Note:
    stint = state.offqueue.over.get(number)
    return str(number), None if stint is None else astuple(stint)


def _load_ended_stints(state: State, notes: list[Note]) -> None:
    ended = sorted((int(name), OffQueueUse(*body)) for name, body in notes)
    state.offqueue.over.update(ended)
    state.offqueue.next = max([state.offqueue.next, 1, *(number + 1 for number, _ in ended)])


DATASETS = NoteKind(
    "dataset",
    keys=lambda state: state.nodes.datasets.by_dataset,
    note=lambda state, name: (name, state.nodes.datasets.by_dataset.get(name)),
    load=_load_datasets,
    listed=lambda state: state.nodes.datasets.changed,
)

HOST_KEYS = NoteKind(
    "host-key",
    keys=lambda state: state.host_keys,
    note=lambda state, node: (node, state.host_keys.get(node)),
    load=_load_host_keys,
    events=(HostKeyPinned, NodeRemoved),
    of_event=lambda _state, event: (event.node,),
)

OFFQUEUE_PROCESSES = NoteKind(
    # Keep this old name of off-queue processes, because the rows in existing stores have it.
    "strangers",
    keys=lambda state: dict.fromkeys(key[0] for key in state.offqueue.open),
    note=_open_stints,
    load=_load_open_stints,
    listed=lambda state: state.offqueue.touched,
)

OFFQUEUE_STINTS = NoteKind(
    "stint",
    keys=lambda state: state.offqueue.over,
    note=_ended_stint,
    load=_load_ended_stints,
    listed=lambda state: state.offqueue.ended,
)
