"""The guard of predictions: its simulation equals the engine, and bad predictions are no longer used."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from controller.config import Config
from controller.core.engine import Engine
from controller.core.estimates.pool_backfill import DEPTH, PoolBackfill, PoolJob
from controller.core.estimates.prediction_guard import BLOCK, BLOCKS, HELD, PredictionGuard
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.model.events.event import Event
from controller.core.state.note_rows import all_notes, changed_notes, clear_note_changes
from controller.core.state.state import State
from controller.plugins.backfill.kinds import EasySjbf
from controller.registry import build_pipeline
from controller.sim.cluster import pool_of
from controller.sim.replay.history import history_of
from controller.sim.replay.replayer import Replay
from controller.sim.run import RunTask, policy_of, run
from controller.sim.simulation import Simulation
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


@pytest.mark.parametrize("shortest_first", [False, True])
def test_the_first_waiting_job_is_not_one_of_the_jobs_tried_for_backfill(shortest_first: bool) -> None:
    """The last of DEPTH jobs behind the first waiting job fits, and the one behind that is not tried."""
    simulated = PoolBackfill(shortest_first=shortest_first)
    simulated.resize(4)
    simulated.add(PoolJob(1, 0.0, 100.0, 3.0, 100.0, 100.0))
    for number in range(2, DEPTH + 2):
        simulated.add(wide(number))
    last, behind = DEPTH + 2, DEPTH + 4
    simulated.add(wide(last)._replace(size=0.5))
    assert last in simulated.slowdowns
    simulated.add(wide(DEPTH + 3))
    simulated.add(wide(behind)._replace(size=0.5))
    assert behind not in simulated.slowdowns


def wide(number: int) -> PoolJob:
    """A job that needs the whole pool. The order of the numbers is that of the assumed run times."""
    return PoolJob(number, 1.0, 10.0, 4.0, 10.0, number / 10)


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


def rows_of(guard: PredictionGuard) -> tuple[Any, list[Any]]:
    """The rows of the guard as the store returns them."""
    snapshot, rows = json.loads(json.dumps([guard.snapshot, sorted(guard.rows.values())]))
    return snapshot, rows


def test_restarted_guards_decide_as_one_that_was_never_restarted() -> None:
    rng, live, jobs = random.Random(3), PredictionGuard(), jobs_of(2, 5_000)
    restarted, restarts, decisions = PredictionGuard(), 0, set()
    for number, job in enumerate(jobs):
        # The predictions are misleading, then good: the guard must decide twice.
        predicted_s = 60.0 / job.run_s if number < 2_500 else job.run_s
        spread = job if number < 2_500 else job._replace(submit_s=job.submit_s + 1e7)
        for guard in (live, restarted):
            guard.learn(spread, predicted_s, UNITS + number // 1_000)
        assert (restarted.trusted, restarted.ratio) == (live.trusted, live.ratio)
        decisions.add(live.trusted)
        if rng.random() < 0.01:
            before, restarted, restarts = restarted, PredictionGuard(), restarts + 1
            restarted.load(*rows_of(before))
            assert rows_of(restarted) == rows_of(before)
    assert decisions == {True, False}
    assert restarts > 20


POOL = pool_of(16)


def journal_of(restarts: Collection[int]) -> tuple[list[Event], State, dict[str, str]]:
    """Simulate 700 jobs of four users. The controller is restarted after the given numbers of events. Return
    the journal, the last state, and the rows of the guard that the commits have written.
    """
    pipeline = build_pipeline(policy_of("easy-sjbf+predicted", Config()).config)
    journal: list[Event] = []
    simulation = Simulation(Engine(pipeline, State(pipeline.order)), journal.append)
    for name, facts in POOL.nodes.items():
        simulation.add_node(name, facts)
    simulation.add_work(
        TraceJob(
            each.number, each.submit_s, POOL.spec(int(min(each.size, 8)), each.limit_s), each.run_s, user
        )
        for each, user in zip(jobs_of(4, 700), cycle("abcd"), strict=False)
    )
    rows: dict[str, str] = {}
    seen, left = 0, sorted(restarts)
    while simulation.step():
        written = changed_notes(simulation.engine.state, journal[seen:])
        rows.update({row.name: row.body for row in written if row.kind == "guard" and row.body is not None})
        clear_note_changes(simulation.engine.state)
        seen = len(journal)
        if left and seen >= left[0]:
            del left[0]
            simulation.restart()
    return journal, simulation.engine.state, rows


def test_a_restarted_controller_and_a_replay_have_the_same_guard() -> None:
    journal, state, rows = journal_of((500, 1_000, 1_700))
    learned = {row.name: row.body for row in all_notes(state) if row.kind == "guard"}
    assert learned == rows, "each commit writes the rows that it has changed"
    guard = state.estimates.guard
    assert guard is not None
    assert guard.blocks, "the simulations have compared jobs"
    again: list[Event] = []
    pipeline = build_pipeline(policy_of("easy-sjbf+predicted", Config()).config)
    replay = Replay(history_of(journal), pipeline, observe=again.append)
    replay.run()
    assert again == journal
    repeated = {row.name: row.body for row in all_notes(replay.engine.state) if row.kind == "guard"}
    assert repeated == learned


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
    guard.load({"trusted": False, "blocks": [[100.0, 150.0]]}, ())
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
