"""Who lets GPUs idle is found by readings: all GPUs of a job, long enough, and only while it runs."""

from __future__ import annotations

from controller.core.model import inputs
from controller.watchers.idle_gpus import IdleGpuWatch
from tests.engine_harness import EngineHarness, spec
from wire.agent.frames import GpuSample


def told(harness: EngineHarness, watch: IdleGpuWatch, now: float) -> list[inputs.Input]:
    harness.now = now
    found = list(watch.found(now))
    for each in found:
        harness.tell(each)
    return found


def test_a_job_idles_when_all_its_gpus_do_for_long_enough() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(2))
    harness.tick()
    harness.start(job)
    first, second = (f"GPU-a-{index}" for index in harness.gpus_of(job))
    watch = IdleGpuWatch(600.0, lambda: [harness.job(job)], lambda _: None)
    assert told(harness, watch, 1_700.0) == []  # nobody has read them yet
    watch.read("a", [GpuSample(first, 0), GpuSample(second, 80)], 1_100.0)
    assert told(harness, watch, 1_800.0) == []
    watch.read("a", [GpuSample(second, 4)], 1_800.0)
    assert told(harness, watch, 2_399.0) == []
    assert told(harness, watch, 2_400.0) == [inputs.GpusIdle(job, 1, 1_800.0)]
    watch.forget("a")
    assert told(harness, watch, 2_500.0) == []  # not heard of is not at work
    watch.read("a", [GpuSample(first, 30), GpuSample(second, 0)], 2_600.0)
    assert told(harness, watch, 2_600.0) == [inputs.GpusBusy(job, 1)]


def test_a_job_is_not_blamed_for_the_time_before_it() -> None:
    harness = EngineHarness()
    harness.join("a")
    watch = IdleGpuWatch(600.0, lambda: [harness.job(1)], lambda _: None)
    watch.read("a", [GpuSample(f"GPU-a-{index}", 0) for index in range(8)], 0.0)
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    assert told(harness, watch, 1_599.0) == []
    assert told(harness, watch, 1_600.0) == [inputs.GpusIdle(job, 1, 1_000.0)]


def test_a_job_without_gpus_never_idles() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(0))
    harness.tick()
    harness.start(job)
    watch = IdleGpuWatch(1.0, lambda: [harness.job(job)], lambda _: None)
    assert told(harness, watch, 9_000.0) == []
