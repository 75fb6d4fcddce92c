"""Measures the scheduling engine without a store, a network and job processes."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.table import heading, row, spread
from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.decision.decision import Accepted
from controller.core.model.events.nodes import NodeJoined
from controller.core.model.inputs.agent_inputs import AgentReported
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.job_inputs import Cancel, Submit
from controller.core.state.apply import apply
from controller.core.state.state import State
from controller.registry import build_pipeline
from wire.agent.reports import AttemptStatus, GpuFacts, NodeFacts
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec

ONE_GPU = JobSpec(command=("true",), gpus=1)
_APART = parse_job_term("app=x on node", None)


def engine_of(nodes: int, gpus: int = 8, **sections: Any) -> Engine:
    """Return an engine with `nodes` idle nodes of `gpus` GPUs. `sections` has tables of scheduler.toml, by
    name; all other tables have default values.
    """
    pipeline = build_pipeline(Config(**sections))
    state = State(pipeline.order)
    for number in range(nodes):
        name = f"n{number:05}"
        devices = tuple(
            GpuFacts(slot, f"GPU-{name}-{slot}", "H100", 81_920, numa=slot // 4, links=tuple(range(gpus)))
            for slot in range(gpus)
        )
        apply(state, NodeJoined(name, 0.0, NodeFacts(64_000, 512 * 1024, devices, numa_nodes=2), "boot"))
    return Engine(pipeline, state)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that one call of `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def submit(engine: Engine, spec: JobSpec, now: float = 0.0) -> int:
    """Submit one job and return its id."""
    reply = engine.handle(Submit(spec, "ada"), now).reply
    assert isinstance(reply, Accepted), reply
    return reply.jobs[0]


def place_one(nodes: int) -> tuple[list[float], list[float]]:
    """Submit and place single jobs until most GPUs of the cluster are in use. Return the seconds of each
    scheduling cycle, and the seconds of each submit and its cycle together.
    """
    engine = engine_of(nodes)
    submit(engine, ONE_GPU)
    engine.handle(Tick(), 0.0)
    cycles, wholes = [], []
    for _ in range(nodes * 7):
        queued = timed(lambda: submit(engine, ONE_GPU))
        placed = timed(lambda: engine.handle(Tick(), 0.0))
        cycles.append(placed)
        wholes.append(queued + placed)
    return cycles, wholes


def place_many(nodes: int, jobs: int) -> float:
    """Place `jobs` jobs of one GPU in one scheduling cycle. Return the number of placed jobs per second."""
    engine = engine_of(nodes)
    for _ in range(jobs):
        submit(engine, ONE_GPU)
    taken = timed(lambda: engine.handle(Tick(), 0.0))
    assert not len(engine.state.queue)
    return jobs / taken


def queue_of(jobs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each submit and of each cancel of a single job, while `jobs` other jobs are
    queued.
    """
    engine = engine_of(1)
    ids = [submit(engine, ONE_GPU) for _ in range(jobs)]
    engine.handle(Tick(), 0.0)
    submits = [timed(lambda: submit(engine, ONE_GPU)) for _ in range(2_000)]
    cancels = [
        timed(lambda job=job: engine.handle(Cancel(job, "ada"), 0.0))  # type: ignore[misc]
        for job in ids[len(ids) // 2 :: max(1, len(ids) // 4_000)]
    ]
    return submits, cancels


def backfill_whole_depth(nodes: int, queued: int) -> float:
    """Return the seconds of one scheduling cycle over `queued` waiting jobs with different requests, while
    almost all GPUs are in use.
    """
    engine = engine_of(nodes)
    dice = random.Random(1)
    for _ in range(nodes * 8):
        submit(engine, JobSpec(command=("true",), gpus=1, time_limit_s=dice.uniform(3_600, 86_400)))
    engine.handle(Tick(), 0.0)
    submit(engine, JobSpec(command=("true",), gpus=64, nodes=8, time_limit_s=3_600))
    for _ in range(queued - 1):
        gpus = dice.choice([0.25, 0.5, 1, 2, 4, 8])
        limit = dice.uniform(600, 86_400)
        submit(
            engine,
            JobSpec(
                command=("true",), gpus=gpus, cpu_milli=dice.randrange(1, 16) * 1_000, time_limit_s=limit
            ),
        )
    first = next(iter(engine.state.releases))[1]
    engine.handle(
        AgentReported(engine.state.jobs[first].running[0].allocation.node, _over(engine, first)), 1.0
    )
    taken = timed(lambda: engine.handle(Tick(), 1.0))
    engine.cycle.first_reservation(1.0)
    return taken


def reserve_all(nodes: int, queued: int) -> tuple[float, list[float]]:
    """Return the seconds in which conservative backfill makes the reservations of `queued` waiting jobs. Also
    return the seconds of each of ten more scheduling cycles, each with one new job.

    One waiting job has anti-affinity to a job on every node. Every node has free resources for this job, but
    all nodes are excluded.
    """
    engine = engine_of(nodes, scheduler={"backfill": "conservative", "backfill_depth": 1_000})
    dice = random.Random(1)
    for number in range(nodes):
        where = {"node": f"n{number:05}"}
        submit(engine, JobSpec(command=("true",), labels={"app": "x"}, selector=where, time_limit_s=90_000))
    engine.handle(Tick(), 0.0)
    for _ in range(nodes * 8 - 1):
        limit = dice.uniform(3_600, 86_400)
        submit(
            engine, JobSpec(command=("true",), gpus=1, cpu_milli=1_000, memory_mib=1_024, time_limit_s=limit)
        )
    # Run several cycles, because one cycle examines at most `backfill_depth` jobs.
    while len(engine.state.queue):
        engine.handle(Tick(), 0.0)
    submit(engine, JobSpec(command=("true",), gpus=1, company=(_APART,), time_limit_s=600))
    for _ in range(queued):
        limit = dice.uniform(7_200, 86_400)
        submit(engine, JobSpec(command=("true",), gpus=dice.choice([2, 4, 8]), time_limit_s=limit))
    first = timed(lambda: engine.handle(Tick(), 1.0))
    cycles = []
    for at in range(10):
        submit(engine, JobSpec(command=("true",), gpus=8, time_limit_s=3_600), 2.0 + at)
        cycles.append(timed(lambda now=2.0 + at: engine.handle(Tick(), now)))  # type: ignore[misc]
    assert len(engine.state.queue) == queued + 11
    return first, cycles


def _over(engine: Engine, job: int) -> AttemptStatus:
    return AttemptStatus(job, engine.state.jobs[job].attempt, 1, 0.0, 1.0, code=0)


def cycle_many_queues(nodes: int, queued: int) -> float:
    """Return the seconds of one scheduling cycle over `queued` waiting jobs of ten queues with many different
    requests.
    """
    engine = engine_of(nodes)
    dice = random.Random(2)
    for number in range(queued):
        spec = JobSpec(
            command=("true",),
            queue=f"q{number % 10}",
            gpus=dice.choice([1, 2, 4, 8]),
            cpu_milli=dice.choice([1, 2, 4, 8]) * 1_000,
            priority=dice.choice([25, 50, 75]),
            time_limit_s=dice.choice([1, 4, 12, 24]) * 3_600 + dice.randrange(600),
        )
        submit(engine, spec)
    gc.collect()  # Collect the garbage of earlier benchmarks now, and not during the cycle.
    return timed(lambda: engine.handle(Tick(), 0.0))


def preempt_many(nodes: int, arrivals: int) -> tuple[float, float]:
    """Submit four jobs of higher priority, and then `arrivals` others, one by one to a full cluster. Return
    the preemption decisions per second for the `arrivals` jobs. Also return the seconds of the first four
    decisions together, for which the engine examines all running jobs.
    """
    engine = engine_of(nodes, preemption={"strategies": ["priority"], "min_runtime_s": 0.0, "rate": 100_000})
    dice = random.Random(3)
    left = nodes * 8
    while left > 0:
        gpus = min(left, dice.choice([1, 1, 2, 4, 8]))
        submit(engine, JobSpec(command=("true",), gpus=gpus, nodes=1, priority=dice.choice([0, 10, 25])))
        left -= gpus
    for now in range(20):
        engine.handle(Tick(), float(now))
    urgent = [
        JobSpec(command=("true",), gpus=dice.choice([1, 2, 4, 8]), priority=75) for _ in range(arrivals)
    ]
    gc.collect()  # Collect the garbage of earlier benchmarks now, and not during the first decisions.

    def arrive(spec: JobSpec, now: float) -> None:
        job = submit(engine, spec, now)
        engine.handle(Tick(), now)
        assert job in engine.state.claims or engine.state.jobs[job].attempt

    first = timed(
        lambda: [arrive(replace(ONE_GPU, gpus=gpus, priority=75), 3_600.0) for gpus in (1, 2, 4, 8)]
    )
    taken = timed(lambda: [arrive(spec, 3_600.0 + at) for at, spec in enumerate(urgent)])
    return arrivals / taken, first


def propose_moves(nodes: int) -> float:
    """Return the seconds in which the engine chooses the jobs to move. On every node 5 of 8 GPUs are free,
    and one waiting job needs 8 GPUs on one node.
    """
    engine = engine_of(nodes, rebalance={"mode": "propose"}, preemption={"min_runtime_s": 0.0})
    for _ in range(8 * nodes):
        submit(engine, replace(ONE_GPU, checkpoint_signal="USR1"))
    engine.handle(Tick(), 0.0)
    for name, node in engine.state.nodes.by_name.items():
        for place, job in enumerate(list(node.held)):
            engine.handle(AgentReported(name, AttemptStatus(job, 1, 1, 0.0)), 1.0)
            if place < 5:
                engine.handle(AgentReported(name, _over(engine, job)), 1.0)
    submit(engine, replace(ONE_GPU, gpus=8, nodes=1, time_limit_s=3_600), 2.0)
    engine.handle(Tick(), 2.0)
    gc.collect()  # Collect the garbage of earlier benchmarks now, and not while jobs are chosen.
    taken = timed(lambda: engine.rebalancer.proposals(3_600.0))
    assert engine.rebalancer.proposals(3_600.0)
    return taken


def run() -> None:
    heading("Core, p50 / p95")
    for nodes in (100, 200):
        cycles, wholes = place_one(nodes)
        row(f"place one job, {nodes} nodes x 8 GPUs", spread(cycles), "100 µs at 100 nodes")
        row(f"submit to decision, {nodes} nodes x 8 GPUs", spread(wholes), "200 µs at 100 nodes")
    for nodes, jobs in ((5_000, 10_000), (10_000, 20_000)):
        rate = place_many(nodes, jobs)
        row(
            f"place {jobs:,} one-GPU jobs in one cycle, {nodes:,} nodes",
            f"{rate:,.0f} jobs/s",
            "6,800 jobs/s",
        )
    for jobs in (50_000, 100_000):
        submits, cancels = queue_of(jobs)
        row(f"submit one job at {jobs:,} queued", spread(submits), "20 µs")
        row(f"cancel one job at {jobs:,} queued", spread(cancels), "20 µs")
    for nodes, queued in ((1_000, 5_000), (1_000, 10_000), (2_000, 5_000)):
        taken = backfill_whole_depth(nodes, queued)
        row(
            f"whole-depth backfill, {nodes:,} full nodes, {queued:,} queued",
            f"{taken * 1e3:.0f} ms",
            "500 ms",
        )
    for nodes, queued in ((200, 400), (200, 800), (400, 400)):
        whole, cycles = reserve_all(nodes, queued)
        named = f"{nodes:,} full nodes, {queued:,} queued"
        row(f"conservative, all reservations, {named}", f"{whole * 1e3:.0f} ms")
        row(f"conservative, one more, {named}", spread(cycles))
    for queued in (160_000, 320_000):
        taken = cycle_many_queues(1_000, queued)
        row(
            f"one full cycle, 1,000 nodes, {queued:,} queued in ten queues",
            f"{taken * 1e3:.0f} ms",
            "1,300 ms",
        )
    for nodes in (5_000, 10_000):
        rate, first = preempt_many(nodes, 2_000)
        row(f"preempt for one job, {nodes:,} full nodes", f"{rate:,.0f} decisions/s", "2,000 decisions/s")
        row(f"the first four of these decisions, {nodes:,} full nodes", f"{first * 1e3:.0f} ms", "")
    for nodes in (1_000, 2_000):
        taken = propose_moves(nodes)
        row(f"propose jobs to move, {nodes:,} nodes with 5 of 8 GPUs free", f"{taken * 1e3:.0f} ms", "")
