"""Measures how many GPUs of a cluster can be allocated (the protocol of the FGD paper).

1. First, each pod of the trace arrives once, in a random order. Then pods drawn at random from the trace
   arrive, until 130 % of all GPUs have been requested.
2. Each pod is submitted as a job and has one scheduling cycle. A pod that is not placed is cancelled.
3. No pod ends. The result is the allocated part of all GPUs at 100 % and at 130 % requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev

from benchmarks.placement.openb_traces import Pod
from benchmarks.placement.strategies import PlacementStrategy
from controller.core.engine import Engine
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.inputs.agent_inputs import AgentSaidHello
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.job_inputs import Cancel, Submit
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.sim.cluster import Cluster
from wire.agent.reports import Hello
from wire.job.spec import JobSpec
from wire.names import WHOLE_GPU

OFFERED = 130
"""All pods of a run together request at most this percentage of the GPUs of the cluster."""
_USER = "trace"
_OFTEN = 200

Curve = list[tuple[int, int]]
"""For each pod, in the order of arrival: the thousandths of GPUs that this pod and the pods before it have
requested, and the thousandths that were allocated to them.
"""


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """The input of one run. `coming` has the pods in the order in which they arrive."""

    strategy: PlacementStrategy
    seed: int
    cluster: Cluster
    coming: list[Pod]


@dataclass(frozen=True, slots=True)
class PlacementRun:
    """The result of a run. `cpu_s` is the CPU time of all scheduling decisions, in seconds."""

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
class PlacementSummary:
    """The results of all runs with one strategy: means, and the standard deviation of the allocated GPUs at
    130 %.
    """

    strategy: str
    allocated_at_100: float
    allocated_at_130: float
    deviation_at_130: float
    pods: float
    accepted: float
    failed: float
    cpu_s: float
    placements_per_s: float
    runs: list[PlacementRun]


def tasks_of(
    strategies: Sequence[PlacementStrategy], seeds: Sequence[int], cluster: Cluster, pods: list[Pod]
) -> list[PlacementTask]:
    """Return one task for each strategy and seed. With the same seed, every strategy gets the same pods in
    the same order.
    """
    orders = {seed: draw_arrivals(pods, cluster.gpus * WHOLE_GPU, seed) for seed in seeds}
    return [PlacementTask(strategy, seed, cluster, orders[seed]) for strategy in strategies for seed in seeds]


def draw_arrivals(pods: Sequence[Pod], capacity: int, seed: int) -> list[Pod]:
    """Return the pods in the order in which they arrive: each pod once, then random pods until the next would
    exceed 130 % of all GPUs.

    If the pods of the trace together request more than 130 %, random pods are left out instead.
    """
    dice = Random(seed)
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


def run(task: PlacementTask, progress: Callable[[int], None] | None = None) -> PlacementRun:
    """Place the pods of the task one by one, and return the result. `progress` is called with the number of
    pods that have arrived so far.
    """
    dice = Random(f"{task.strategy.name} {task.seed}")
    engine = engine_of(task.cluster, task.strategy.make(dice))
    requested = allocated = accepted = 0
    curve: Curve = []
    began = time.process_time()
    for number, pod in enumerate(task.coming, 1):
        if not task.strategy.steady:
            engine.placer.clear_rankings()
        requested += pod.milli
        if place_pod(engine, pod.spec) is not None:
            allocated += pod.milli
            accepted += 1
        curve.append((requested, allocated))
        if progress is not None and not number % _OFTEN:
            progress(number)
    taken = time.process_time() - began
    capacity = task.cluster.gpus * WHOLE_GPU
    return PlacementRun(
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
    """Return an engine in which all nodes of the cluster are connected and idle."""
    engine = Engine(pipeline, State(pipeline.order, 0, pipeline.sharing))
    for name, facts in cluster.nodes.items():
        engine.handle(AgentSaidHello(name, Hello(name, "virtual", name, "virtual", facts)), 0.0)
    return engine


def place_pod(engine: Engine, spec: JobSpec) -> JobPlaced | None:
    """Submit the job and run one scheduling cycle. Return the placement. If the job was refused, or was
    cancelled because it was not placed, return None.
    """
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
    """Return the percentage of all GPUs that was allocated when the arrived pods had requested `percent` %
    (rounded) of all GPUs. `capacity` is the number of all GPUs in thousandths.

    If there were several pods at which this was so, return the mean over these pods. If there was none,
    return the value after the last pod before.
    """
    requested = [round(100 * milli / capacity) for milli, _ in curve]
    allocated = [100 * milli / capacity for _, milli in curve]
    then = [amount for at, amount in zip(requested, allocated, strict=True) if at == percent]
    before = [amount for at, amount in zip(requested, allocated, strict=True) if at < percent]
    return fmean(then or before[-1:] or [0.0])


def summaries(trials: Sequence[PlacementRun]) -> list[PlacementSummary]:
    """Return one summary for each strategy, in the order in which the strategies first appear in `trials`."""
    names = dict.fromkeys(trial.strategy for trial in trials)
    return [_summary([trial for trial in trials if trial.strategy == name]) for name in names]


def _summary(runs: list[PlacementRun]) -> PlacementSummary:
    at_130 = [trial.allocated_at_130 for trial in runs]
    taken = sum(trial.cpu_s for trial in runs)
    return PlacementSummary(
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
