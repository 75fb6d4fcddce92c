"""The notes (database rows other than those of jobs and nodes) with statistics about the run times and starts
of jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from controller.core.estimates.prediction_guard import PredictionGuard
from controller.core.estimates.runtime_prediction import PredictionScore, Run
from controller.core.estimates.similar_jobs import SimilarityKey
from controller.core.model.start_estimates import load_score
from controller.core.state.notes.note_kind import Note, NoteKind
from controller.core.state.state import State
from wire.codec import dumps

_SNAPSHOT = "backfill"


def _runs(state: State, key: SimilarityKey) -> Note:
    """Return the note about one group of similar jobs (`key`). The note contains the latest run times of
    these jobs.

    The body of the note is a list: first the time at which the last of these jobs ended, then a run for each
    job in the order of their ends. A run is the run time in seconds. For an element of an array, a run is the
    list [run time, id of the array]. The body is None if there are no runs.
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
    # Load the groups of similar jobs in the order of their last ends. `state.estimates` keeps only a limited
    # number of groups, and drops the groups that were loaded first.
    loaded = [(body[0], tuple(json.loads(name)), body[1:]) for name, body in notes]
    for at, key, run_times in sorted(loaded, key=itemgetter(0, 1)):
        state.estimates.load_runs(key, at, map(_run, run_times))


def _load_scores(state: State, notes: list[Note]) -> None:
    state.estimates.scores.update((name, PredictionScore(*body)) for name, body in notes)


def _rescored_users(state: State) -> Iterator[str]:
    return (key[0] for key in state.estimates.changed if key[0] in state.estimates.scores)


def _guard(state: State, key: int | None) -> Note:
    """Return a note about the guard of predictions: with the key None the snapshot of its simulations, and
    with a number a job that the guard has learned.
    """
    name, guard = _SNAPSHOT if key is None else str(key), state.estimates.guard
    if guard is None:
        return name, None
    return name, guard.snapshot if key is None else guard.rows.get(key)


def _load_guard(state: State, notes: list[Note]) -> None:
    found = dict(notes)
    snapshot = found.pop(_SNAPSHOT, None)
    if snapshot is not None:
        guard = state.estimates.guard = PredictionGuard(shortest_first=snapshot["shortest_first"])
        guard.load(snapshot, found.values())


def _guard_keys(state: State) -> list[int | None]:
    guard = state.estimates.guard
    return [] if guard is None else [None, *guard.rows]


def _changed_guard_keys(state: State) -> list[int | None]:
    estimates = state.estimates
    return [*estimates.dropped_guard_rows, *(estimates.guard.changed if estimates.guard else ())]


def _load_starts(state: State, notes: list[Note]) -> None:
    state.estimates.starts.update((name, load_score(body)) for name, body in notes)


RUN_TIMES = NoteKind(
    "runs",
    keys=lambda state: state.estimates.runs,
    note=_runs,
    load=_load_runs,
    listed=lambda state: state.estimates.changed,
)


def _service_rates(state: State, size: float) -> Note:
    rates = state.service_rates
    return str(size), [rates.seconds[size], rates.ends[size]]


def _load_service_rates(state: State, notes: list[Note]) -> None:
    for size, (seconds, ends) in notes:
        state.service_rates.load(float(size), seconds, ends)


SERVICE_RATES = NoteKind(
    "service-rates",
    keys=lambda state: state.service_rates.seconds,
    note=_service_rates,
    load=_load_service_rates,
    listed=lambda state: state.service_rates.changed,
)

PREDICTION_GUARD = NoteKind(
    "guard",
    keys=_guard_keys,
    note=_guard,
    load=_load_guard,
    listed=_changed_guard_keys,
)

RUN_SCORES = NoteKind(
    "score",
    keys=lambda state: state.estimates.scores,
    note=lambda state, user: (user, state.estimates.scores[user].dump()),
    load=_load_scores,
    listed=_rescored_users,
)

START_SCORES = NoteKind(
    "starts",
    keys=lambda state: state.estimates.starts,
    note=lambda state, kind: (kind, state.estimates.starts[kind].dump()),
    load=_load_starts,
    listed=lambda state: state.estimates.rescored,
)
