"""Notes: the database rows for stored state that is neither a job nor a node, such as quotas, shares and
reservations.

A note is one row (kind, name, JSON body). Each kind has one entry in `NOTE_KINDS`: the events that change
notes of the kind, a function that makes a note, and a function that loads all notes of the kind.

How the changed notes are found
1. For each event of a batch, `changed_notes` finds the notes that the event changes (`of_event`).
2. Some notes change as a side effect of events. For example, the end of a job changes the known run times.
   The objects for shares, estimates and off-queue usage each keep a set of the notes that changed in this
   way. `changed_notes` also reads these sets (`listed`).
3. `clear_note_changes` empties these sets. Call it after the notes were put into the batch that is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from operator import itemgetter
from typing import Any

from controller.core.estimates.run_kinds import RunKind
from controller.core.estimates.runtime_prediction import PredictionScore, Run
from controller.core.fairshare.offqueue_usage import OffQueueUse
from controller.core.fairshare.share_tree import SharePath
from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobRequeued,
    MembersExited,
    MembersStarted,
)
from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nodes import HostKeyPinned, NodeRemoved
from controller.core.model.events.queued import JobQueued
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.events.tenants import BudgetReached, HoursChanged, QuotaSet, QuotaUnset, ShareSet
from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.model.rows import NoteRow
from controller.core.model.services import ServiceOrders
from controller.core.model.start_estimates import load_score
from controller.core.quota.usage_counters import TenantKey
from controller.core.reservations.reservations import Reservation
from controller.core.state.state import AppliedConfig, State
from controller.core.state.workloads import Workload
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.codec import decode, dumps, encode

USAGE = "usage"
LEARNED = ("runs", "score", "starts")
"""The kinds of notes with statistics about the run times and starts of jobs that have ended."""

Note = tuple[str, Any]
"""The name of a note and its body as data for JSON; the body None deletes the note."""


@dataclass(frozen=True, slots=True, eq=False)
class NoteKind:
    """One kind of note. A note is a database row that is neither a job nor a node. A key identifies a note
    within its kind. The function `note` returns the name and the body of the note with this key.
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
    """Yields the keys in the set of changed notes of this kind, which the state keeps."""


def changed_notes(state: State, batch: Iterable[Event]) -> list[NoteRow]:
    """Return the notes that the events in `batch` changed, with their contents after the events. Notes are
    the database rows of quotas, shares and the like.

    The state keeps sets of changed notes. This function does not empty them; `clear_note_changes` does.

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
    """Empty the state's sets of changed notes (database rows of quotas, shares and the like). Call it when
    these notes are in the batch of rows that the next commit writes.
    """
    state.shares.without_row.clear()
    state.estimates.changed.clear()
    state.estimates.rescored.clear()
    state.nodes.datasets.changed.clear()
    state.workloads.dropped.clear()
    state.offqueue.touched.clear()
    state.offqueue.ended.clear()
    state.offqueue.charged.clear()


def all_notes(state: State, *, learned: bool = True) -> list[NoteRow]:
    """Return all notes: the database rows of quotas, shares, reservations and the like. With `learned` False,
    leave out the statistics of ended jobs (the kinds in LEARNED).
    """
    return [
        _row(kind, kind.note(state, key))
        for kind in NOTE_KINDS
        if learned or kind.kind not in LEARNED
        for key in kind.keys(state)
    ]


def load_notes(state: State, rows: Iterable[NoteRow]) -> None:
    """Load notes (database rows of quotas, shares and the like) into an empty state. Skip notes of kinds that
    this version does not know.
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


# --- quotas, and the GPU time that users, projects and queues have used ---


def _quota(state: State, key: TenantKey) -> Note:
    quota = state.quotas.edits.get(key)
    return "/".join(key), None if quota is None else encode(quota)


def _load_quotas(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        scope, _, tenant = name.partition("/")
        state.limit((scope, tenant), decode(Quota, body, f"notes[{name}]"))


def _spent(state: State, key: TenantKey) -> Note:
    spent = {str(hour): part for hour, part in state.accounts.tenant(key).spent.items()}
    return "/".join(key), spent or None


def _spent_by(state: State, event: AttemptExited | MembersExited) -> Iterator[TenantKey]:
    job = state.jobs[event.job]
    if job.spec.gpus or job.spec.gpu is not None:
        # A job without GPUs changes no note here, because these notes (database rows) contain only the GPU
        # time of tenants.
        for account in state.accounts.tenants_of(job.user, job.spec):
            yield account.key


def _load_spent(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        scope, _, tenant = name.partition("/")
        state.accounts.tenant((scope, tenant)).load_spent({int(hour): part for hour, part in body.items()})


# --- budgets ---


def _load_budgets(state: State, notes: list[Note]) -> None:
    for project, body in notes:
        state.budgets.load(project, body)


def _budgets_changed_by(state: State, event: Event) -> list[str]:
    if isinstance(event, ConfigApplied):
        return list(state.budgets.uses)
    if isinstance(event, BudgetReached):
        return [event.project]
    assert isinstance(event, JobEvent)
    project = state.jobs[event.job].spec.project
    return [project] if project in state.budgets.uses else []


# --- shares: weights, limits and decayed usage ---


def _load_weights(state: State, notes: list[Note]) -> None:
    state.shares.set_weights.update(notes)


def _load_share_limits(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.limit_share(name, *body)


def _usage(state: State, path: SharePath) -> Note:
    return dumps(list(path)), state.shares.accounts[path].usage.dump()


def _has_usage(state: State, path: SharePath) -> bool:
    """Return whether the usage of the share has a database row. The root of the share tree (an empty path)
    has one only after the first use. Every other share has one.
    """
    return bool(path or state.shares.accounts[path].usage.at)


def _used_by(state: State, event: JobEvent) -> Iterator[SharePath]:
    """Yield the paths of the shares that are charged for the event's job, from the root of the share tree
    down to the user. Leave out shares whose usage has no database row.
    """
    tenant = state.tenant(state.jobs[event.job])
    return (path for depth in range(len(tenant) + 1) if _has_usage(state, path := tenant[:depth]))


def _listed_usage(state: State) -> Iterator[SharePath]:
    return (path for path in (*state.shares.without_row, *state.offqueue.charged) if _has_usage(state, path))


def _load_usage(state: State, notes: list[Note]) -> None:
    loaded: set[SharePath] = set()
    for name, body in notes:
        path = tuple(json.loads(name))
        state.shares.add(path)
        state.shares.accounts[path].usage.load(body)
        loaded.add(path)
    state.shares.without_row = [path for path in state.shares.accounts if path and path not in loaded]


# --- reservations ---


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


# --- hours ---


def _load_hours(state: State, notes: list[Note]) -> None:
    for _, body in notes:
        state.follow_hours(tuple(body))


# --- data sets ---


def _load_datasets(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.nodes.datasets.load(name, body)


# --- services ---


def _service(state: State, name: str) -> Note:
    orders = state.services.get(name)
    return name, None if orders is None else encode(orders)


def _load_services(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.services[name] = decode(ServiceOrders, body, f"notes[{name}]")


# --- workloads ---


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


# --- host keys, off-queue processes, configuration ---


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


def _config(state: State, _key: str) -> Note:
    return "applied", None if state.config is None else encode(state.config)


def _load_config(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.config = decode(AppliedConfig, body, f"notes[{name}]")


# --- statistics of run times and starts ---


def _runs(state: State, key: RunKind) -> Note:
    """Return the note (database row) with the latest run times of one group of similar jobs (`key`).

    The body of the note is a list: the time at which the last of these jobs ended, then a run for each job in
    the order of their ends. A run is the run time in seconds. For an element of an array it is the list [run
    time, id of the array]. The body is None if there are no runs.
    """
    found = state.estimates.runs.get(key)
    if found is None:
        return dumps(list(key)), None
    return dumps(list(key)), [
        found.at,
        *(
            run_s if array is None else [run_s, array]
            for run_s, array in zip(found.recent, found.arrays, strict=True)
        ),
    ]


def _run(stored: float | list[Any]) -> Run:
    return (stored[0], stored[1]) if isinstance(stored, list) else (stored, None)


def _load_runs(state: State, notes: list[Note]) -> None:
    # Load the groups of similar jobs in the order of their last ends. `state.estimates` keeps a limited
    # number of groups: those that are loaded last.
    loaded = [(body[0], tuple(json.loads(name)), body[1:]) for name, body in notes]
    for at, key, run_times in sorted(loaded, key=itemgetter(0, 1)):
        state.estimates.load_runs(key, at, map(_run, run_times))


def _load_scores(state: State, notes: list[Note]) -> None:
    state.estimates.scores.update((name, PredictionScore(*body)) for name, body in notes)


def _rescored_users(state: State) -> Iterator[str]:
    return (key[0] for key in state.estimates.changed if key[0] in state.estimates.scores)


def _load_starts(state: State, notes: list[Note]) -> None:
    state.estimates.starts.update((name, load_score(body)) for name, body in notes)


NOTE_KINDS = (
    NoteKind(
        "share",
        keys=lambda state: state.shares.set_weights,
        note=lambda state, name: (name, state.shares.set_weights[name]),
        # Load weights before "usage". Loading usage creates the shares, and a share reads its weight when it
        # is created.
        load=_load_weights,
        events=(ShareSet,),
        of_event=lambda state, event: (event.share,) if event.share in state.shares.set_weights else (),
    ),
    NoteKind(
        "share-limits",
        keys=lambda state: state.shares.limits,
        note=lambda state, name: (name, list(state.shares.limits[name])),
        load=_load_share_limits,
        events=(ShareSet,),
        of_event=lambda state, event: (event.share,) if event.share in state.shares.limits else (),
    ),
    NoteKind(
        "quota",
        keys=lambda state: state.quotas.edits,
        note=_quota,
        load=_load_quotas,
        events=(QuotaSet, QuotaUnset),
        of_event=lambda _state, event: ((event.scope, event.name),),
    ),
    NoteKind(
        "spent",
        keys=lambda state: [key for key, account in state.accounts.by_key.items() if account.spent],
        note=_spent,
        load=_load_spent,
        events=(AttemptExited, MembersExited),
        of_event=_spent_by,
    ),
    NoteKind(
        "budget",
        keys=lambda state: state.budgets.uses,
        note=lambda state, project: (project, state.budgets.dump(project)),
        load=_load_budgets,
        events=(
            AttemptStarted,
            MembersStarted,
            AttemptExited,
            MembersExited,
            BudgetReached,
            ConfigApplied,
        ),
        of_event=_budgets_changed_by,
    ),
    NoteKind(
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
    ),
    NoteKind(
        "hours",
        keys=lambda state: ("in-force",) if state.hours else (),
        note=lambda state, name: (name, list(state.hours) or None),
        load=_load_hours,
        events=(HoursChanged,),
        of_event=lambda _state, _event: ("in-force",),
    ),
    NoteKind(
        "dataset",
        keys=lambda state: state.nodes.datasets.by_dataset,
        note=lambda state, name: (name, state.nodes.datasets.by_dataset.get(name)),
        load=_load_datasets,
        listed=lambda state: state.nodes.datasets.changed,
    ),
    NoteKind(
        "service",
        keys=lambda state: state.services,
        note=_service,
        load=_load_services,
        events=(ServiceRestarted, ServiceScaled),
        of_event=lambda _state, event: (event.service,),
    ),
    NoteKind(
        "workload",
        keys=lambda state: state.workloads.by_id,
        note=_workload,
        load=_load_workloads,
        events=(WorkloadSubmitted, WorkloadRetried, JobQueued, JobEnded),
        of_event=_workload_of,
        listed=lambda state: state.workloads.dropped,
    ),
    NoteKind(
        "runs",
        keys=lambda state: state.estimates.runs,
        note=_runs,
        load=_load_runs,
        listed=lambda state: state.estimates.changed,
    ),
    NoteKind(
        "score",
        keys=lambda state: state.estimates.scores,
        note=lambda state, user: (user, state.estimates.scores[user].dump()),
        load=_load_scores,
        listed=_rescored_users,
    ),
    NoteKind(
        "starts",
        keys=lambda state: state.estimates.starts,
        note=lambda state, kind: (kind, state.estimates.starts[kind].dump()),
        load=_load_starts,
        listed=lambda state: state.estimates.rescored,
    ),
    NoteKind(
        USAGE,
        keys=lambda state: [path for path in state.shares.accounts if _has_usage(state, path)],
        note=_usage,
        load=_load_usage,
        events=(JobPlaced, JobGrew, JobRequeued, JobEnded),
        of_event=_used_by,
        listed=_listed_usage,
    ),
    NoteKind(
        "host-key",
        keys=lambda state: state.host_keys,
        note=lambda state, node: (node, state.host_keys.get(node)),
        load=_load_host_keys,
        events=(HostKeyPinned, NodeRemoved),
        of_event=lambda _state, event: (event.node,),
    ),
    NoteKind(
        # Keep this old name for the database rows of off-queue processes, because existing stores contain it.
        "strangers",
        keys=lambda state: dict.fromkeys(key[0] for key in state.offqueue.open),
        note=_open_stints,
        load=_load_open_stints,
        listed=lambda state: state.offqueue.touched,
    ),
    NoteKind(
        "stint",
        keys=lambda state: state.offqueue.over,
        note=_ended_stint,
        load=_load_ended_stints,
        listed=lambda state: state.offqueue.ended,
    ),
    NoteKind(
        "config",
        keys=lambda state: () if state.config is None else ("applied",),
        note=_config,
        load=_load_config,
        events=(ConfigApplied,),
        of_event=lambda _state, _event: ("applied",),
    ),
)

_KINDS_OF_EVENT: dict[type[Any], list[NoteKind]] = {}
for _kind in NOTE_KINDS:
    for _type in _kind.events:
        _KINDS_OF_EVENT.setdefault(_type, []).append(_kind)
