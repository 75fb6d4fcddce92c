"""Idle jobs are found by GPU readings: all GPUs of a running job, for long enough."""

from __future__ import annotations

import pytest

from controller.core.lifecycle.idle_gpus import IdlePolicy
from controller.core.model.inputs import agent_inputs
from controller.core.model.inputs.input import Input
from controller.watchers.idle_gpus import IdleGpuWatch
from tests.engine_harness import EngineHarness, spec
from wire.agent.reports import GpuSample


def reported(harness: EngineHarness, watch: IdleGpuWatch, now: float) -> list[Input]:
    harness.now = now
    found = list(watch.found(now))
    for each in found:
        harness.tell(each)
    return found


def watched(after_s: float) -> tuple[EngineHarness, IdleGpuWatch, int]:
    """A job on the first GPU of node a, which runs since 1,000 s."""
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    assert harness.gpus_of(job) == [0]
    return harness, IdleGpuWatch(IdlePolicy(after_s), lambda: [harness.job(job)], lambda _: None), job


def test_job_is_idle_when_all_its_gpus_are_idle_long_enough() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(2))
    harness.tick()
    harness.start(job)
    first, second = (f"GPU-a-{index}" for index in harness.gpus_of(job))
    watch = IdleGpuWatch(IdlePolicy(600.0), lambda: [harness.job(job)], lambda _: None)
    assert reported(harness, watch, 1_700.0) == []  # no reading has arrived yet
    watch.read("a", [GpuSample(first, 0), GpuSample(second, 80)], 1_100.0)
    assert reported(harness, watch, 1_800.0) == []
    watch.read("a", [GpuSample(second, 4)], 1_800.0)
    assert reported(harness, watch, 2_399.0) == []
    assert reported(harness, watch, 2_400.0) == [agent_inputs.GpusIdle(job, 1, 1_800.0)]
    watch.forget("a")
    assert reported(harness, watch, 2_500.0) == []  # a GPU without a reading is not busy
    watch.read("a", [GpuSample(first, 30), GpuSample(second, 0)], 2_600.0)
    assert reported(harness, watch, 2_600.0) == [agent_inputs.GpusBusy(job, 1)]


def test_idle_time_before_a_job_does_not_count() -> None:
    harness = EngineHarness()
    harness.join("a")
    watch = IdleGpuWatch(IdlePolicy(600.0), lambda: [harness.job(1)], lambda _: None)
    watch.read("a", [GpuSample(f"GPU-a-{index}", 0) for index in range(8)], 0.0)
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    assert reported(harness, watch, 1_599.0) == []
    assert reported(harness, watch, 1_600.0) == [agent_inputs.GpusIdle(job, 1, 1_000.0)]


def bursts(watch: IdleGpuWatch, percent: int, busy_s: float, every_s: float, until: float) -> None:
    """Readings of the first GPU of node a from 1,000 s on: idle, and at work for a moment now and then."""
    at = 1_000.0
    while at < until:
        watch.read("a", [GpuSample("GPU-a-0", 0)], at)
        watch.read("a", [GpuSample("GPU-a-0", percent)], at + every_s - busy_s)
        at += every_s


@pytest.mark.parametrize(
    ("percent", "busy_s", "every_s", "idle"),
    [(10, 2.5, 15.0, True), (100, 10.0, 300.0, True), (100, 30.0, 300.0, False), (6, 299.0, 300.0, False)],
)
def test_the_mean_over_the_window_decides(percent: int, busy_s: float, every_s: float, idle: bool) -> None:
    harness, watch, _ = watched(1_800.0)
    bursts(watch, percent, busy_s, every_s, 8_000.0)
    found = reported(harness, watch, 8_000.0)
    assert [type(each) for each in found] == ([agent_inputs.GpusIdle] if idle else [])
    since = watch.since("a", 8_000.0)
    assert (since["GPU-a-0"] <= 8_000.0 - 1_800.0) if idle else not since


def test_job_that_works_again_loses_its_idle_flag() -> None:
    harness, watch, job = watched(1_800.0)
    watch.read("a", [GpuSample("GPU-a-0", 0)], 1_000.0)
    assert reported(harness, watch, 9_000.0) == [agent_inputs.GpusIdle(job, 1, 1_000.0)]
    watch.read("a", [GpuSample("GPU-a-0", 100)], 9_000.0)
    assert agent_inputs.GpusBusy(job, 1) not in reported(harness, watch, 9_010.0), (
        "a burst of 10 s is no work"
    )
    assert reported(harness, watch, 9_060.0) == [agent_inputs.GpusBusy(job, 1)]
    watch.read("a", [GpuSample("GPU-a-0", 0)], 12_000.0)
    assert watch.since("a", 13_000.0) == {"GPU-a-0": 12_000.0}, "the work before does not count"
    assert reported(harness, watch, 13_799.0) == []
    assert reported(harness, watch, 13_800.0) == [agent_inputs.GpusIdle(job, 1, 12_000.0)]


def test_a_gpu_with_many_readings_takes_little_memory() -> None:
    _, watch, _ = watched(1_800.0)
    bursts(watch, 80, 1.0, 2.0, 9_000.0)
    [readings] = watch._readings["a"].values()
    assert len(readings.starts) == len(readings.percents) <= 48
    assert 39.0 < readings.mean(0.0, 9_000.0) < 41.0
    assert watch.since("a", 9_000.0) == {}


def test_a_job_without_gpus_never_idles() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(0))
    harness.tick()
    harness.start(job)
    watch = IdleGpuWatch(IdlePolicy(1.0), lambda: [harness.job(job)], lambda _: None)
    assert reported(harness, watch, 9_000.0) == []


def test_each_queue_has_its_own_idle_time() -> None:
    idling = IdlePolicy(
        600.0, of_queues={"book": IdlePolicy(60.0), "batch": IdlePolicy(0.0), "long": IdlePolicy(900.0)}
    )
    harness = EngineHarness()
    harness.join("a")
    jobs = [harness.submit(spec(1, queue=queue)) for queue in ("default", "book", "batch", "long")]
    harness.tick()
    for job in jobs:
        harness.start(job)
    watch = IdleGpuWatch(idling, lambda: [harness.job(job) for job in jobs], lambda _: None)
    watch.read("a", [GpuSample(f"GPU-a-{index}", 0) for index in range(8)], 1_000.0)
    flagged = {
        now: {each.job for each in reported(harness, watch, now)} for now in (1_060.0, 1_600.0, 1_900.0)
    }
    default, book, _, long = jobs
    assert flagged == {1_060.0: {book}, 1_600.0: {book, default}, 1_900.0: {book, default, long}}
