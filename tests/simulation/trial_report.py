"""Runs one seed and checks all guarantees."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from controller.core.engine import Engine
from controller.core.model.events.attempts import (
    AttemptExited,
    JobPlaced,
    JobShrunk,
    MembersExited,
    StopRequested,
)
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import NodeJoined, NodeWentAway
from controller.core.model.job import Job
from tests.simulation.controller import SimulatedController
from tests.simulation.oracle import GuaranteeBroken
from tests.simulation.trial import EngineMaker, FaultTrial
from tests.simulation.trial_plan import TrialPlan
from wire.job.gangs import MemberFailure

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
"""Fields of events that are printed after a failure."""
PATIENCE_S = 120.0
"""Seconds beyond its grace within which a stopped process must end while its node is connected."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken guarantee, and the events before it."""

    seed: int
    promise: str
    how: str
    latest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a trial."""

    seed: int
    failure: Failure | None
    troubles: Counter[str]
    jobs: int
    attempts: int
    events: int
    virtual_s: float
    cpu_s: float


def run_seed(
    plan: TrialPlan,
    seed: int,
    engine: EngineMaker = Engine,
    controller: type[SimulatedController] = SimulatedController,
) -> Verdict:
    """Run one trial. A broken guarantee or an exception of the engine becomes part of the verdict."""
    began = time.process_time()
    trial = FaultTrial(plan, seed, engine, controller)
    failure = None
    try:
        trial.run()
        check_guarantees(trial)
    except GuaranteeBroken as broken:
        failure = _failure(trial, broken.promise, broken.how)
    except Exception as error:  # because a crash of the engine is a finding
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


def check_guarantees(trial: FaultTrial) -> None:
    """Check all guarantees at the end of a trial."""
    store = trial.controller.store
    trial.controller.compare()
    for key, jobs in trial.acknowledged.items():
        kept = tuple(row.id for row in store.jobs.values() if row.key == key)
        if kept != jobs:
            how = f"{key} was answered {jobs}, on record are {kept}"
            raise GuaranteeBroken("1 an acknowledged submit is never lost", how)
    for each in store.folded.jobs.values():
        trial.truth.compare(each)
    for run in trial.truth.leftovers():
        raise GuaranteeBroken("6 nothing is left behind", f"job {run.order.job} still runs on {run.host}")
    for host in trial.hosts.values():
        for job, attempt in host.unsettled():
            how = f"{host.name} was never told that the end of attempt {attempt} of job {job} is on record"
            raise GuaranteeBroken("6 nothing is left behind", how)
    _obeyed(trial)


def _obeyed(trial: FaultTrial) -> None:
    """Check that stopped processes ended while their node was connected long enough."""
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
                    raise GuaranteeBroken("stopped processes end", how)


def _ends_wanted(
    journal: Iterable[Event], jobs: Mapping[int, Job]
) -> Iterator[tuple[int, int, float, tuple[str, ...]]]:
    """(job, attempt, time, nodes) of attempts that must end: stopped, or a member failed.

    Without nodes: on all nodes. Gangs that continue without failed members are skipped.
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


def _connections(trial: FaultTrial) -> dict[str, list[tuple[float, float]]]:
    """Connected time spans of each node."""
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


def _failure(trial: FaultTrial, promise: str, how: str) -> Failure:
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
