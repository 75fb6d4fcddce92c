"""The notes (database rows other than those of jobs and nodes) about tenants: quotas, used GPU-hours, budgets
and fair shares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

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
from controller.core.model.events.tenants import BudgetReached, QuotaSet, QuotaUnset, ShareSet
from controller.core.quota.usage_counters import TenantKey
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import State
from wire.cluster.quota import Quota
from wire.codec import decode, dumps, encode

USAGE = "usage"


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
        # Only a job with GPUs changes these notes, because they contain only GPU time.
        for account in state.accounts.tenants_of(job.user, job.spec):
            yield account.key


def _load_spent(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        scope, _, tenant = name.partition("/")
        state.accounts.tenant((scope, tenant)).load_spent({int(hour): part for hour, part in body.items()})


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


def _load_weights(state: State, notes: list[Note]) -> None:
    state.shares.set_weights.update(notes)


def _load_share_limits(state: State, notes: list[Note]) -> None:
    for name, body in notes:
        state.limit_share(name, *body)


def _usage(state: State, path: SharePath) -> Note:
    return dumps(list(path)), state.shares.accounts[path].usage.dump()


def _has_usage(state: State, path: SharePath) -> bool:
    """Return whether the usage of the tenant has a database row. The root of the fair-share tree (an empty
    path) has a row only after the first use. Every other tenant has a row.
    """
    return bool(path or state.shares.accounts[path].usage.at)


def _used_by(state: State, event: JobEvent) -> Iterator[SharePath]:
    """Yield the paths of the tenants that are charged for the event's job, from the root of the fair-share
    tree to the user. Leave out tenants whose usage has no database row.
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


SHARE_WEIGHTS = NoteKind(
    "share",
    keys=lambda state: state.shares.set_weights,
    note=lambda state, name: (name, state.shares.set_weights[name]),
    # Load weights before "usage". Loading usage creates the tenants, and a new tenant reads its weight.
    load=_load_weights,
    events=(ShareSet,),
    of_event=lambda state, event: (event.share,) if event.share in state.shares.set_weights else (),
)

SHARE_LIMITS = NoteKind(
    "share-limits",
    keys=lambda state: state.shares.limits,
    note=lambda state, name: (name, list(state.shares.limits[name])),
    load=_load_share_limits,
    events=(ShareSet,),
    of_event=lambda state, event: (event.share,) if event.share in state.shares.limits else (),
)

QUOTAS = NoteKind(
    "quota",
    keys=lambda state: state.quotas.edits,
    note=_quota,
    load=_load_quotas,
    events=(QuotaSet, QuotaUnset),
    of_event=lambda _state, event: ((event.scope, event.name),),
)

GPU_HOURS = NoteKind(
    "spent",
    keys=lambda state: [key for key, account in state.accounts.by_key.items() if account.spent],
    note=_spent,
    load=_load_spent,
    events=(AttemptExited, MembersExited),
    of_event=_spent_by,
)

BUDGETS = NoteKind(
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
)

USAGE_NOTES = NoteKind(
    USAGE,
    keys=lambda state: [path for path in state.shares.accounts if _has_usage(state, path)],
    note=_usage,
    load=_load_usage,
    events=(JobPlaced, JobGrew, JobRequeued, JobEnded),
    of_event=_used_by,
    listed=_listed_usage,
)
