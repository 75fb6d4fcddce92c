"""How much of a cluster's GPUs can be given away: pods come one by one, are placed or fail, and never leave.

This is the yardstick of the FGD paper. All pods of the trace come in a random order, then more of them,
drawn at random, until 130 % of all GPUs have been asked for. The engine gets each as a job of its own and
has one cycle to place it; what finds no place then is cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev

from controller.core.engine import Engine
from controller.core.events import JobPlaced
from controller.core.inputs import Accepted, AgentSaidHello, Cancel, Submit, Tick
from controller.core.plugin import Pipeline
from controller.core.state import State
from controller.sim.cluster import Cluster
from controller.sim.openb import Pod
from controller.sim.strategies import Strategy
from wire.frames import Hello
from wire.spec import JobSpec
from wire.words import WHOLE_GPU

OFFERED = 130
"""Percent of all GPUs that are asked for in the end."""
_USER = "trace"
_OFTEN = 200

Curve = list[tuple[int, int]]
"""After each pod: thousandths of GPUs asked for so far, and given away so far."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    strategy: Strategy
    seed: int
    cluster: Cluster
    coming: list[Pod]


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a run; `cpu_s` is the engine's work alone."""

    strategy: str
    seed: int
    pods: int
    accepted: int
    failed: int
    allocated_at_100: float
    allocated_at_130: float
    cpu_s: float
    placements_per_s: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over the runs of one strategy, and their standard deviation where it is named so."""

    strategy: str
    allocated_at_100: float
    allocated_at_130: float
    deviation_at_130: float
    pods: float
    accepted: float
    failed: float
    cpu_s: float
    placements_per_s: float
    runs: list[Trial]


def tasks_of(
    strategies: Sequence[Strategy], seeds: Sequence[int], cluster: Cluster, pods: list[Pod]
) -> list[Task]:
    """All runs: every strategy sees the same pods in the same order."""
    orders = {seed: arrivals(pods, cluster.gpus * WHOLE_GPU, seed) for seed in seeds}
    return [Task(strategy, seed, cluster, orders[seed]) for strategy in strategies for seed in seeds]


def arrivals(pods: Sequence[Pod], capacity: int, seed: int) -> list[Pod]:
    """The pods in the order of arrival: all of them once, then drawn until the next would be too much.

    If all of them are too much already, some are left out instead.
    """
    dice = Random(seed)  # noqa: S311 - a simulation
    by_name = sorted(pods, key=lambda pod: pod.name)
    coming = list(by_name)
    dice.shuffle(coming)
    asked, most = sum(pod.milli for pod in coming), OFFERED * capacity // 100
    if asked > most:
        while asked > most:
            asked -= coming.pop(dice.randrange(len(coming))).milli
        return coming
    while True:
        pod = by_name[dice.randrange(len(by_name))]
        asked += pod.milli
        if asked > most:
            return coming
        coming.append(pod)


def run(task: Task, progress: Callable[[int], None] | None = None) -> Trial:
    """Let them come."""
    dice = Random(f"{task.strategy.name} {task.seed}")  # noqa: S311 - not those of the order of arrival
    engine = engine_of(task.cluster, task.strategy.make(dice))
    asked = given = accepted = 0
    curve: Curve = []
    began = time.process_time()
    for number, pod in enumerate(task.coming, 1):
        if not task.strategy.steady:
            engine.placer.forget()
        asked += pod.milli
        if put(engine, pod.spec) is not None:
            given += pod.milli
            accepted += 1
        curve.append((asked, given))
        if progress is not None and not number % _OFTEN:
            progress(number)
    taken = time.process_time() - began
    capacity = task.cluster.gpus * WHOLE_GPU
    return Trial(
        task.strategy.name,
        task.seed,
        len(curve),
        accepted,
        len(curve) - accepted,
        allocated_at(100, curve, capacity),
        allocated_at(130, curve, capacity),
        taken,
        accepted / max(taken, 1e-9),
    )


def engine_of(cluster: Cluster, pipeline: Pipeline) -> Engine:
    """An engine whose nodes have all said hello and are idle."""
    engine = Engine(pipeline, State(pipeline.order, 0, pipeline.sharing))
    for name, facts in cluster.nodes.items():
        engine.handle(AgentSaidHello(name, Hello(name, "virtual", name, "virtual", facts)), 0.0)
    return engine


def put(engine: Engine, spec: JobSpec) -> JobPlaced | None:
    """Where a job goes now; None: it found no place, and is gone."""
    reply = engine.handle(Submit(spec, _USER), 0.0).reply
    if not isinstance(reply, Accepted):
        return None
    for event in engine.handle(Tick(), 0.0).events:
        if isinstance(event, JobPlaced):
            return event
    engine.handle(Cancel(reply.jobs[0], _USER), 0.0)
    engine.state.forget_old()
    return None


def allocated_at(percent: int, curve: Curve, capacity: int) -> float:
    """Percent of all GPUs given away when so many percent had been asked for, to the nearest.

    The mean over the pods that arrived just then; where none did, as it was when the last before them had.
    """
    asked = [round(100 * asked / capacity) for asked, _ in curve]
    given = [100 * given / capacity for _, given in curve]
    then = [amount for at, amount in zip(asked, given, strict=True) if at == percent]
    before = [amount for at, amount in zip(asked, given, strict=True) if at < percent]
    return fmean(then or before[-1:] or [0.0])


def summaries(trials: Sequence[Trial]) -> list[Summary]:
    """One for each strategy, in their order."""
    names = dict.fromkeys(trial.strategy for trial in trials)
    return [_summary([trial for trial in trials if trial.strategy == name]) for name in names]


def _summary(runs: list[Trial]) -> Summary:
    at_130 = [trial.allocated_at_130 for trial in runs]
    taken = sum(trial.cpu_s for trial in runs)
    return Summary(
        runs[0].strategy,
        fmean(trial.allocated_at_100 for trial in runs),
        fmean(at_130),
        stdev(at_130) if len(at_130) > 1 else 0.0,
        fmean(trial.pods for trial in runs),
        fmean(trial.accepted for trial in runs),
        fmean(trial.failed for trial in runs),
        taken / len(runs),
        sum(trial.accepted for trial in runs) / max(taken, 1e-9),
        runs,
    )
