"""Decides which guarantees were broken, from acknowledgements, records and answers; a pure function.

The letters are those of the design: A terminal states, B never twice at once, C attempts, D outcomes,
E what is held, F nothing left, G the journal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.oracle.records import Life
from wire.api.jobs import JobView
from wire.job.spec import JobSpec
from wire.names import WHOLE_GPU, JobState, Reason


@dataclass(frozen=True)
class Room:
    """The resources of a node."""

    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True)
class Evidence:
    """All evidence, after all jobs have ended."""

    acknowledged: list[tuple[int, JobSpec]]
    jobs: Mapping[int, JobView]
    lives: list[Life]
    rooms: Mapping[str, Room]
    left: list[str] = field(default_factory=list)
    journal: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Broken:
    """A broken guarantee, and how it was broken."""

    promise: str
    how: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.how}"


def judge(evidence: Evidence) -> list[Broken]:
    """All broken guarantees."""
    found = {
        "A": _not_ended(evidence),
        "B": _at_once(evidence.lives),
        "C": _attempts(evidence),
        "D": _outcomes(evidence),
        "E": _held(evidence),
        "F": evidence.left,
        "G": evidence.journal,
    }
    return [Broken(promise, how) for promise, those in found.items() for how in those]


def _not_ended(evidence: Evidence) -> Iterator[str]:
    given: set[int] = set()
    for job, _ in evidence.acknowledged:
        if job in given:
            yield f"id {job} was given twice"
        given.add(job)
        view = evidence.jobs.get(job)
        if view is None:
            yield f"job {job} was acknowledged and is gone"
        elif not view.state.terminal:
            yield f"job {job} was acknowledged and is {view.state.value}"


def _at_once(lives: list[Life]) -> Iterator[str]:
    """Members of a job run together, but each rank runs once per attempt, and attempts do not overlap."""
    for own in _by_job(lives).values():
        seen: dict[tuple[int, int], Life] = {}
        for life in own:
            twin = seen.setdefault((life.attempt, life.rank), life)
            if twin is not life:
                yield f"{life} ran although pid {twin.pid} on {twin.node} had run it"
        for life in own:
            for other in own:
                if life.attempt < other.attempt and other.began < life.last and life.began < other.last:
                    yield f"{life} and {other} lived at once"


def _attempts(evidence: Evidence) -> Iterator[str]:
    for job, own in _by_job(evidence.lives).items():
        for before, after in pairwise(own):
            if after.attempt < before.attempt:
                yield f"{after} began after {before}"
        succeeded = min(
            (attempt for attempt in {life.attempt for life in own} if _succeeded(own, attempt)), default=None
        )
        if succeeded is not None and own[-1].attempt > succeeded:
            yield f"job {job} succeeded in attempt {succeeded}, and yet there is {own[-1]}"
        view = evidence.jobs.get(job)
        if view is not None and view.attempt < own[-1].attempt:
            yield f"{own[-1]} ran, and the record knows only {view.attempt} attempts"


def _succeeded(lives: list[Life], attempt: int) -> bool:
    return all(life.outcome == 0 for life in lives if life.attempt == attempt)


def _outcomes(evidence: Evidence) -> Iterator[str]:
    lives = _by_job(evidence.lives)
    for job, _ in evidence.acknowledged:
        view = evidence.jobs.get(job)
        if view is not None and view.state.terminal:
            last = [life for life in lives.get(job, []) if life.attempt == view.attempt]
            yield from (f"job {job}: {how}" for how in _misrecorded(view, last))


def _misrecorded(view: JobView, last: list[Life]) -> Iterator[str]:
    returned = {life.outcome for life in last}
    told = view.exit_code if view.signal is None else -view.signal
    if view.state is JobState.COMPLETED:
        if returned != {0} or len({life.rank for life in last}) != view.nodes:
            yield f"on record as COMPLETED; its {view.nodes} processes returned {_shown(returned)}"
    elif view.state is JobState.CANCELLED or view.reason is Reason.SUPERVISOR_LOST:
        # The exit code that a killed process was about to return is not guaranteed.
        if view.exit_code is not None and view.exit_code not in returned:
            yield f"exit code {view.exit_code} on record; its processes returned {_shown(returned)}"
    elif view.reason in (Reason.EXIT_NONZERO, Reason.SIGNAL):
        if told not in returned:
            yield f"{told} on record; its processes returned {_shown(returned)}"
    elif None not in returned and last:
        yield f"on record as {view.reason.value}; its processes returned {_shown(returned)}"


def _shown(returned: set[int | None]) -> str:
    return ", ".join(sorted("nothing" if each is None else str(each) for each in returned)) or "nothing"


def _held(evidence: Evidence) -> Iterator[str]:
    """Allocations never exceed the node. A killed run held its resources until its last record at least."""
    shares = {job: round(spec.gpus * WHOLE_GPU) for job, spec in evidence.acknowledged if 0 < spec.gpus < 1}
    taken: dict[str, list[tuple[float, int, Life]]] = defaultdict(list)
    for life in evidence.lives:
        for gpu in life.gpus:
            taken[gpu] += _span(life, shares.get(life.job, WHOLE_GPU))
        taken[f"CPU of {life.node}"] += _span(life, life.cpu_milli)
        taken[f"memory of {life.node}"] += _span(life, life.memory_mib)
    limits = {f"CPU of {name}": room.cpu_milli for name, room in evidence.rooms.items()}
    limits |= {f"memory of {name}": room.memory_mib for name, room in evidence.rooms.items()}
    for what, changes in taken.items():
        most, limit = _most(changes), limits.get(what, WHOLE_GPU)
        if most > limit:
            holders = sorted({change[2].job for change in changes})
            yield f"{most} of {limit} of {what} were held at once, by some of jobs {holders[:20]}"


def _span(life: Life, amount: int) -> list[tuple[float, int, Life]]:
    return [(life.began, amount, life), (life.last, -amount, life)]


def _most(changes: Iterable[tuple[float, int, Life]]) -> int:
    """An end frees its resources for a start at the same time."""
    now = most = 0
    for _, amount, _ in sorted(changes, key=lambda change: change[:2]):
        now += amount
        most = max(most, now)
    return most


def _by_job(lives: Iterable[Life]) -> dict[int, list[Life]]:
    found: dict[int, list[Life]] = defaultdict(list)
    for life in lives:
        found[life.job].append(life)
    return found
