"""One seed tried: what came of it, and whether every promise was kept."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from controller.core.engine import Engine
from controller.core.events import (
    AttemptExited,
    Event,
    JobPlaced,
    JobShrunk,
    MembersExited,
    NodeJoined,
    NodeWentAway,
    StopRequested,
)
from controller.core.jobs import Job
from controller.sim.faults.controller import Controller
from controller.sim.faults.plan import Plan
from controller.sim.faults.trial import EngineMaker, Trial
from controller.sim.faults.truth import PromiseBroken
from wire.gangs import MemberFailure

TOLD = (
    "job",
    "node",
    "attempt",
    "code",
    "signal",
    "why",
    "state",
    "reason",
    "detail",
    "by",
    "uuid",
    "health",
)
"""What is told of an event after a failure."""
PATIENCE_S = 120.0
"""A process that is to end has so long beyond its grace, while its node is connected."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken promise, and what led up to it."""

    seed: int
    promise: str
    how: str
    latest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial came to."""

    seed: int
    failure: Failure | None
    troubles: Counter[str]
    jobs: int
    attempts: int
    events: int
    virtual_s: float
    cpu_s: float


def try_seed(
    plan: Plan, seed: int, engine: EngineMaker = Engine, controller: type[Controller] = Controller
) -> Verdict:
    """Run one trial; a broken promise, or an engine that fails, is a verdict and no exception."""
    began = time.process_time()
    trial = Trial(plan, seed, engine, controller)
    failure = None
    try:
        trial.run()
        judge(trial)
    except PromiseBroken as broken:
        failure = _failure(trial, broken.promise, broken.how)
    except Exception as error:  # a bug, and finding those is what this is for
        where = traceback.extract_tb(error.__traceback__)[-1]
        how = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        failure = _failure(trial, "the engine does not fail", how)
    return Verdict(
        seed=seed,
        failure=failure,
        troubles=Counter(trial.trouble.seen),
        jobs=len(trial.controller.store.jobs),
        attempts=sum(map(len, trial.truth.runs.values())),
        events=len(trial.controller.store.journal),
        virtual_s=trial.clock.now,
        cpu_s=time.process_time() - began,
    )


def judge(trial: Trial) -> None:
    """Hold everything that happened against the promises, once nothing is left to happen."""
    store = trial.controller.store
    trial.controller.compare()
    for key, jobs in trial.acknowledged.items():
        kept = tuple(row.id for row in store.jobs.values() if row.key == key)
        if kept != jobs:
            how = f"{key} was answered {jobs}, on record are {kept}"
            raise PromiseBroken("1 an acknowledged submit is never lost", how)
    for each in store.folded.jobs.values():
        trial.truth.compare(each)
    for run in trial.truth.leftovers():
        raise PromiseBroken("6 nothing is left behind", f"job {run.order.job} still runs on {run.host}")
    for host in trial.hosts.values():
        for job, attempt in host.unsettled():
            how = f"{host.name} was never told that the end of attempt {attempt} of job {job} is on record"
            raise PromiseBroken("6 nothing is left behind", how)
    _obeyed(trial)


def _obeyed(trial: Trial) -> None:
    """Who is to end has ended, once its node was connected for long enough."""
    connected = _connections(trial)
    jobs = trial.controller.store.folded.jobs
    for job, attempt, since, nodes in _ends_wanted(trial.controller.store.journal, jobs):
        for run in trial.truth.runs[job]:
            if run.order.attempt != attempt or run.host not in (nodes or [run.host]):
                continue
            needed = run.order.grace_s + jobs[job].spec.checkpoint_s + PATIENCE_S
            for begin, end in connected[run.host]:
                begin = max(begin, since, run.status.started_at or 0.0)
                if min(end, run.status.ended_at or end) - begin > needed:
                    how = f"job {job} on {run.host} was to end at {begin:.0f}, and nothing stood in the way"
                    raise PromiseBroken("who is to end ends", how)


def _ends_wanted(
    journal: Iterable[Event], jobs: Mapping[int, Job]
) -> Iterator[tuple[int, int, float, tuple[str, ...]]]:
    """(job, attempt, since when, where) of attempts that are to end: stopped, or a member of theirs failed.

    Without nodes: wherever they run. Gangs that go on without a member are not asked why.
    """
    attempts: dict[int, int] = {}
    left: set[tuple[int, str]] = set()
    for event in journal:
        if isinstance(event, JobPlaced):
            attempts[event.job] = event.attempt
            left -= {each for each in left if each[0] == event.job}
        elif isinstance(event, JobShrunk):
            left |= {(event.job, node) for node in event.nodes}
            yield event.job, attempts[event.job], event.at, event.nodes
        elif isinstance(event, StopRequested) or (
            isinstance(event, AttemptExited | MembersExited)
            and jobs[event.job].spec.gang.on_failure is not MemberFailure.CONTINUE
            and any(
                (how.code != 0 or how.why) and (event.job, node) not in left
                for node, how in event.exits.items()
            )
        ):
            yield event.job, attempts[event.job], event.at, ()


def _connections(trial: Trial) -> dict[str, list[tuple[float, float]]]:
    """From when to when the controller was connected to each node."""
    found: dict[str, list[tuple[float, float]]] = {node: [] for node in trial.hosts}
    since: dict[str, float] = {}

    def end(node: str, at: float) -> None:
        if node in since:
            found[node].append((since.pop(node), at))

    moments: list[tuple[float, int, Event | None]] = [(at, 1, None) for at in trial.deaths]
    moments += [(event.at, 0, event) for event in trial.controller.store.journal]
    for at, _, event in sorted(moments, key=lambda moment: moment[:2]):
        if event is None:
            for node in trial.hosts:
                end(node, at)
        elif isinstance(event, NodeJoined | NodeWentAway):
            end(event.node, at)
            if isinstance(event, NodeJoined):
                since[event.node] = at
    for node in trial.hosts:
        end(node, trial.clock.now)
    return found


def _failure(trial: Trial, promise: str, how: str) -> Failure:
    told = tuple(f"{at:>12.3f}  {_told(what)}" for at, what in trial.latest)
    return Failure(trial.seed, promise, how, told)


def _told(what: Event | str) -> str:
    if isinstance(what, str):
        return f"-- {what}"
    words = [
        f"{each.name}={value}"
        for each in fields(what)
        if each.name in TOLD and (value := getattr(what, each.name)) not in ("", None)
    ]
    nodes = [f"on={allocation.node}" for allocation in getattr(what, "allocations", ())]
    return " ".join([type(what).__name__, *words, *nodes])
