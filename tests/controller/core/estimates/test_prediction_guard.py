"""The guard of predictions: its simulation equals the engine, and bad predictions are no longer used."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from controller.config import Config
from controller.core.estimates.pool_backfill import PoolBackfill, PoolJob
from controller.core.estimates.prediction_guard import BLOCK, BLOCKS, HELD, PredictionGuard
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.plugins.backfill.kinds import EasySjbf
from controller.sim.cluster import pool_of
from controller.sim.run import RunTask, policy_of, run
from controller.sim.trace_job import TraceJob
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.spec import JobSpec

HOUR = 3_600.0
UNITS = 32
PREDICTED = replace(PIPELINE, estimating=PredictionConfig(predicted=True, least=3), backfill=EasySjbf())


def jobs_of(seed: int, count: int) -> list[PoolJob]:
    """Random jobs at 85 % load with limits up to ten times too long, and all times different."""
    rng = random.Random(seed)
    found, submit_s = [], 0.0
    for number in range(1, count + 1):
        run_s, size = min(rng.lognormvariate(6, 1.5), 40_000.0), float(2 ** rng.randrange(5))
        limit_s = run_s * rng.uniform(1.1, 10)
        found.append(PoolJob(number, submit_s, run_s, size, limit_s, limit_s))
        submit_s += rng.expovariate(0.85 * UNITS / (850 * 6.2))
    return found


@pytest.mark.parametrize("policy", ["easy", "easy-sjbf"])
def test_the_simulation_of_the_guard_starts_jobs_as_the_engine_does(policy: str) -> None:
    jobs, pool = jobs_of(1, 400), pool_of(UNITS)
    work = [
        TraceJob(each.number, each.submit_s, pool.spec(int(each.size), each.limit_s), each.run_s)
        for each in jobs
    ]
    rows = run(RunTask(policy_of(policy, Config()), pool, work)).rows
    simulated = PoolBackfill(shortest_first=policy == "easy-sjbf")
    simulated.resize(UNITS)
    for each in jobs:
        simulated.add(each)
    simulated.add(PoolJob(0, 1e9, 1.0, 1.0, 1.0, 1.0))
    expected = {row.job: max(1.0, (row.end - row.submit) / max(row.end - row.start, 10.0)) for row in rows}
    del simulated.slowdowns[0]
    assert simulated.slowdowns == pytest.approx(expected)
    assert max(expected.values()) > 50, "jobs waited"


def test_guard_drops_misleading_predictions_and_takes_good_ones_again() -> None:
    guard = PredictionGuard()
    jobs = iter(jobs_of(2, 6_000))

    def learn(count: int, *, misleading: bool) -> None:
        for _ in range(count):
            job = next(jobs)
            if not misleading:
                job = job._replace(submit_s=job.submit_s + 1e7)  # The old queues are empty by then.
            # Misleading predictions call the longest jobs the shortest ones.
            guard.learn(job, 60.0 / job.run_s if misleading else job.run_s, UNITS)

    learn(HELD + 3 * BLOCK, misleading=True)
    assert guard.trusted, "three blocks do not decide"
    learn(4 * BLOCK, misleading=True)
    assert not guard.trusted
    assert guard.ratio is not None
    assert guard.ratio > 1.02
    learn((BLOCKS + 2) * BLOCK + HELD, misleading=False)
    assert guard.trusted
    assert guard.ratio < 0.98


def test_without_trust_backfill_uses_queue_order_and_time_limits_also_after_a_restart() -> None:
    harness = EngineHarness(PREDICTED)
    harness.join("m")
    for _ in range(3):
        job = harness.submit(train())
        harness.tick()
        harness.start(job)
        harness.now += HOUR
        harness.exit(job)
    guard = harness.state.estimates.guard
    assert guard is not None
    guard.load([[100.0, 150.0]], trusted=False)
    harness.submit(train(name="first", time_limit_s=2 * HOUR))
    harness.tick()
    harness.submit(train(8, name="wide"))
    waiting = harness.submit(train())
    assert harness.tick() == []
    loaded = harness.restarted().state.estimates.guard
    assert loaded is not None
    assert (loaded.trusted, loaded.ratio, loaded.shortest_first) == (False, 1.5, True)
    guard.trusted = True
    harness.join("small", gpus=1)  # Free resources make backfill try all jobs again.
    assert [start.job for start in harness.tick_at(harness.now + 1)] == [waiting]


def train(gpus: float = 4, **more: object) -> JobSpec:
    return spec(gpus, **{"name": "train", "time_limit_s": 10 * HOUR, **more})
