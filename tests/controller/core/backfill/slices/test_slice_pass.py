"""Running jobs that can save their state give way to waiting jobs after a time slice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.core.model.inputs import agent_inputs
from controller.plugins.orders.by_service import AttainedServiceOrder, ExpectedRemainingOrder
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.reports import AttemptStatus, Checkpoint

HOUR = 3_600.0
SLICED = replace(PIPELINE, order=ExpectedRemainingOrder(), slice_s=HOUR)


def harness_of(nodes: int, pipeline: Any = SLICED) -> EngineHarness:
    harness = EngineHarness(pipeline)
    for number in range(1, nodes + 1):
        harness.join(f"n{number}", gpus=8)
    return harness


def submit(harness: EngineHarness, gpus: int = 8, **more: Any) -> int:
    return harness.submit(spec(gpus, **{"checkpoint_signal": "USR1", **more}))


def start(harness: EngineHarness, gpus: int = 8, **more: Any) -> int:
    job = submit(harness, gpus, **more)
    harness.tick()
    harness.start(job)
    return job


def stopped(harness: EngineHarness) -> set[int]:
    return {job for _, job in harness.stops()}


def give_way(harness: EngineHarness, job: int) -> None:
    """The job saves its state and ends."""
    for node in harness.nodes_of(job):
        began, attempt = harness.job(job).started_at, harness.job(job).attempt
        saved = Checkpoint("state", at=harness.now)
        ended = AttemptStatus(
            job, attempt, 100 + job, began, harness.now, None, 15, "preempted", checkpoint=saved
        )
        harness.tell(agent_inputs.AgentReported(node, ended))


def test_a_job_gives_way_after_its_slice_and_comes_back() -> None:
    harness = harness_of(1)
    first = start(harness)
    begun = harness.now
    harness.tick_at(begun + HOUR / 2)
    second = submit(harness)
    harness.tick()
    assert not stopped(harness)
    assert harness.engine.next_at <= begun + HOUR + 1
    harness.tick_at(begun + HOUR)
    assert stopped(harness) == {first}
    give_way(harness, first)
    harness.tick()
    assert harness.nodes_of(second) == ["n1"]
    assert harness.job(first).spent_gpu_s == 8 * HOUR
    harness.start(second)
    harness.exit(second)
    harness.tick()
    assert harness.nodes_of(first) == ["n1"]
    assert harness.job(first).attempt == 2


def test_jobs_that_cannot_save_or_are_protected_keep_their_gpus() -> None:
    for more in ({"checkpoint_signal": ""}, {"preemptible": False}, {"min_runtime_s": 5 * HOUR}):
        harness = harness_of(1)
        start(harness, **more)
        submit(harness)
        harness.tick_at(harness.now + 2 * HOUR)
        assert not stopped(harness), more


def test_a_job_does_not_give_way_to_one_that_is_no_better() -> None:
    """Both jobs have run for the same time when the first has come back."""
    harness = harness_of(1, replace(SLICED, order=AttainedServiceOrder()))
    first = start(harness)
    submit(harness)
    harness.tick_at(harness.now + HOUR)
    assert stopped(harness) == {first}
    give_way(harness, first)
    harness.tick()
    other = next(job for job in harness.state.jobs.values() if job.id != first)
    harness.start(other.id)
    harness.tick_at(harness.now + HOUR)
    assert stopped(harness) == {first}


def test_a_gang_gets_all_its_nodes_at_once() -> None:
    """No node is emptied for the gang before both slices are over, and no other job starts there."""
    harness = harness_of(2)
    one = start(harness, 7)
    begun = harness.now
    harness.tick_at(begun + HOUR / 2)
    two = start(harness, 7)
    # Jobs with 16 GPUs have always ended soon, and other jobs never.
    for _ in range(200):
        harness.state.service_rates.learn(16.0, 0.0, 300.0, ended=True)
        harness.state.service_rates.learn(7.0, 0.0, 500 * HOUR, ended=False)
        harness.state.service_rates.learn(1.0, 0.0, 500 * HOUR, ended=False)
    gang = submit(harness, 16, nodes=2)
    small = submit(harness, 1)
    harness.tick_at(begun + HOUR)
    assert (stopped(harness), harness.nodes_of(small)) == (set(), [])
    harness.tick_at(begun + 1.5 * HOUR)
    assert (stopped(harness), harness.nodes_of(small)) == ({one, two}, [])
    give_way(harness, one)
    harness.tick()
    assert not harness.nodes_of(gang)
    give_way(harness, two)
    harness.tick()
    assert set(harness.nodes_of(gang)) == {"n1", "n2"}


def test_the_rates_survive_a_restart() -> None:
    harness = harness_of(1)
    for _ in range(3):
        job = start(harness, 4)
        harness.tick_at(harness.now + 1_000.0)
        harness.exit(job)
        harness.tick()
    rates = harness.state.service_rates
    other = harness.restarted().state.service_rates
    assert rates.ends[4.0][1] == 3
    assert (other.seconds, other.ends) == (rates.seconds, rates.ends)


def test_a_waiting_job_is_explained() -> None:
    harness = harness_of(1)
    start(harness)
    waiting = submit(harness)
    harness.tick()
    assert harness.why(waiting).sentence
