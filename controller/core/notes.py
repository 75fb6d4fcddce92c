"""What is neither a job nor a node, to rows and back: quotas, shares, use, reservations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass

from controller.core.accounts import Key
from controller.core.estimates import Kind, Score
from controller.core.events import (
    AttemptExited,
    Event,
    HostKeyPinned,
    JobEnded,
    JobGrew,
    JobPlaced,
    JobRequeued,
    MembersExited,
    NodeRemoved,
    QuotaSet,
    QuotaUnset,
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
    ShareSet,
)
from controller.core.foresight import load
from controller.core.offqueue import Stint
from controller.core.reservations import Reservation
from controller.core.rows import NoteRow
from controller.core.shares import Path
from controller.core.state import State
from wire.codec import decode, dumps, encode
from wire.quota import Quota
from wire.reservation import ReservationSpec

QUOTA, SPENT, SHARE, USAGE, RESERVATION = "quota", "spent", "share", "usage", "reservation"
HOST_KEY, STRANGERS, STINT = "host-key", "strangers", "stint"
SHARE_LIMITS = "share-limits"
RUNS, SCORE, STARTS = "runs", "score", "starts"


@dataclass(frozen=True, slots=True)
class ReservationRecord:
    """A reservation as its row keeps it."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    by: str
    began: bool


def noted(state: State, events: Iterable[Event]) -> list[NoteRow]:
    """The notes that a batch of events changed, as they are now."""
    quotas: dict[Key, None] = {}
    spent: dict[Key, None] = {}
    reserved: dict[str, None] = {}
    for event in events:
        if isinstance(event, AttemptExited | MembersExited):
            job = state.jobs[event.job]
            if job.spec.gpus or job.spec.gpu is not None:
                spent.update((account.key, None) for account in state.accounts.of(job.user, job.spec))
        elif isinstance(event, QuotaSet | QuotaUnset):
            quotas[event.scope, event.name] = None
        elif isinstance(event, ReservationMade):
            reserved[event.asked.name] = None
        elif isinstance(event, ReservationBegan | ReservationEnded | ReservationCancelled):
            reserved[event.reservation] = None
    keyed = dict.fromkeys(event.node for event in events if isinstance(event, HostKeyPinned | NodeRemoved))
    used = dict.fromkeys(path for event in events for path in _used(state, event))
    used.update(dict.fromkeys(state.shares.fresh))
    offqueue = state.offqueue
    used.update(offqueue.charged)
    strangers = [_strangers_note(state, node) for node in offqueue.touched]
    stints = [_stint_note(state, number) for number in offqueue.ended]
    for changes in (offqueue.charged, offqueue.touched, offqueue.ended):
        changes.clear()
    state.shares.fresh.clear()
    runs, scored = [*state.estimates.changed], dict.fromkeys(kind[0] for kind in state.estimates.changed)
    state.estimates.changed.clear()
    starts = [*state.estimates.rescored]
    state.estimates.rescored.clear()
    shares = dict.fromkeys(event.share for event in events if isinstance(event, ShareSet))
    weighed = [name for name in shares if name in state.shares.live]
    limited = [name for name in shares if name in state.shares.limits]
    return [
        *(_quota_note(state, key) for key in quotas),
        *(_spent_note(state, key) for key in spent),
        *(_reservation_note(state, name) for name in reserved),
        *(_share_note(state, name) for name in weighed),
        *(_share_limits_note(state, name) for name in limited),
        *(_usage_note(state, path) for path in used if _is_used(state, path)),
        *(_host_key_note(state, node) for node in keyed),
        *strangers,
        *stints,
        *(_runs_note(state, kind) for kind in runs),
        *(_starts_note(state, kind) for kind in starts),
        *(_score_note(state, user) for user in scored if user in state.estimates.scores),
    ]


def notes_of(state: State, *, learnt: bool = True) -> list[NoteRow]:
    """Every note there is; without those on how long jobs run if these are not wanted."""
    spent = [key for key, account in state.accounts.by_key.items() if account.spent]
    return [
        *(_quota_note(state, key) for key in state.quotas.edits),
        *(_spent_note(state, key) for key in spent),
        *(_share_note(state, name) for name in state.shares.live),
        *(_share_limits_note(state, name) for name in state.shares.limits),
        *(_reservation_note(state, name) for name in state.reservations.by_name),
        *(_runs_note(state, kind) for kind in state.estimates.runs if learnt),
        *(_score_note(state, user) for user in state.estimates.scores if learnt),
        *(_starts_note(state, kind) for kind in state.estimates.starts if learnt),
        *(_usage_note(state, path) for path in state.shares.accounts if _is_used(state, path)),
        *(_host_key_note(state, node) for node in state.host_keys),
        *(_strangers_note(state, node) for node in dict.fromkeys(key[0] for key in state.offqueue.open)),
        *(_stint_note(state, number) for number in state.offqueue.over),
    ]


def recall(state: State, notes: Iterable[NoteRow]) -> None:
    """Fill a state from notes; kinds of other versions are passed over."""
    seen: set[Path] = set()
    runs = []
    over: dict[int, Stint] = {}
    # Weights first: accounts open with theirs.
    for note in sorted(notes, key=lambda note: note.kind != SHARE):
        scope, _, name = note.name.partition("/")
        body = json.loads(note.body or "null")
        if note.kind == QUOTA:
            state.quotas.edit((scope, name), decode(Quota, body, f"notes[{note.name}]"))
        elif note.kind == RESERVATION:
            kept = decode(ReservationRecord, body, f"notes[{note.name}]")
            state.reservations.put(Reservation(kept.spec, kept.nodes, kept.starts_at, kept.by, kept.began))
        elif note.kind == SPENT:
            state.accounts.account((scope, name)).remember({int(hour): part for hour, part in body.items()})
        elif note.kind == SHARE:
            state.shares.live[note.name] = body
        elif note.kind == SHARE_LIMITS:
            state.shares.limit(note.name, *body)
        elif note.kind == RUNS and body is not None:
            runs.append((body[0], tuple(json.loads(note.name)), body[1:]))
        elif note.kind == SCORE:
            state.estimates.scores[note.name] = Score(*body)
        elif note.kind == STARTS:
            state.estimates.starts[note.name] = load(body)
        elif note.kind == HOST_KEY and body is not None:
            state.host_keys[note.name] = body
        elif note.kind == STRANGERS and body is not None:
            stints = [Stint(*each) for each in body]
            state.offqueue.open.update(((each.node, each.uuid, each.user), each) for each in stints)
        elif note.kind == STINT and body is not None:
            over[int(note.name)] = Stint(*body)
        elif note.kind == USAGE:
            path = tuple(json.loads(note.name))
            state.shares.open(path)
            state.shares.accounts[path].usage.load(body)
            seen.add(path)
    state.offqueue.over.update(sorted(over.items()))
    state.offqueue.next = max(state.offqueue.next, *(number + 1 for number in over), 1)
    for at, kind, came in sorted(runs):
        state.estimates.recall(kind, at, came)
    state.shares.fresh = [path for path in state.shares.accounts if path and path not in seen]


def _host_key_note(state: State, node: str) -> NoteRow:
    key = state.host_keys.get(node)
    return NoteRow(HOST_KEY, node, None if key is None else dumps(key))


def _strangers_note(state: State, node: str) -> NoteRow:
    there = [astuple(state.offqueue.open[key]) for key in state.offqueue.on(node)]
    return NoteRow(STRANGERS, node, dumps(there) if there else None)


def _stint_note(state: State, number: int) -> NoteRow:
    stint = state.offqueue.over.get(number)
    return NoteRow(STINT, str(number), None if stint is None else dumps(astuple(stint)))


def _quota_note(state: State, key: Key) -> NoteRow:
    quota = state.quotas.edits.get(key)
    return NoteRow(QUOTA, "/".join(key), None if quota is None else dumps(encode(quota)))


def _reservation_note(state: State, name: str) -> NoteRow:
    each = state.reservations.by_name.get(name)
    if each is None:
        return NoteRow(RESERVATION, name, None)
    record = ReservationRecord(each.spec, each.nodes, each.starts_at, each.by, each.began)
    return NoteRow(RESERVATION, name, dumps(encode(record)))


def _spent_note(state: State, key: Key) -> NoteRow:
    spent = {str(hour): part for hour, part in state.accounts.account(key).spent.items()}
    return NoteRow(SPENT, "/".join(key), dumps(spent) if spent else None)


def _share_note(state: State, name: str) -> NoteRow:
    return NoteRow(SHARE, name, dumps(state.shares.live[name]))


def _share_limits_note(state: State, name: str) -> NoteRow:
    return NoteRow(SHARE_LIMITS, name, dumps(list(state.shares.limits[name])))


def _is_used(state: State, path: Path) -> bool:
    """Tenants are worth a note from their first job, the whole cluster from the first use on."""
    return bool(path or state.shares.accounts[path].usage.at)


def _usage_note(state: State, path: Path) -> NoteRow:
    return NoteRow(USAGE, dumps(list(path)), dumps(state.shares.accounts[path].usage.dump()))


def _runs_note(state: State, kind: Kind) -> NoteRow:
    """When the last of them ended, and how long they took, as they came."""
    found = state.estimates.runs.get(kind)
    return NoteRow(RUNS, dumps(list(kind)), None if found is None else dumps([found.at, *found.came]))


def _starts_note(state: State, kind: str) -> NoteRow:
    return NoteRow(STARTS, kind, dumps(state.estimates.starts[kind].dump()))


def _score_note(state: State, user: str) -> NoteRow:
    return NoteRow(SCORE, user, dumps(state.estimates.scores[user].dump()))


def _used(state: State, event: Event) -> Iterator[Path]:
    """The accounts whose use an event changes."""
    if isinstance(event, JobPlaced | JobGrew | JobRequeued | JobEnded):
        tenant = state.tenant(state.jobs[event.job])
        for depth in range(len(tenant) + 1):
            yield tenant[:depth]
