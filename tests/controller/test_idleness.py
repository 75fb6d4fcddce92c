"""Who lets GPUs idle is found by readings: all GPUs of a job, long enough, and only while it runs."""

from __future__ import annotations

from controller.core import inputs
from controller.idleness import IdleWatch
from tests.worlds import World, spec
from wire.frames import GpuSample


def told(world: World, watch: IdleWatch, now: float) -> list[inputs.Input]:
    world.now = now
    found = list(watch.found(now))
    for each in found:
        world.tell(each)
    return found


def test_a_job_idles_when_all_its_gpus_do_for_long_enough() -> None:
    world = World()
    world.join("a")
    job = world.submit(spec(2))
    world.tick()
    world.start(job)
    first, second = (f"GPU-a-{index}" for index in world.gpus_of(job))
    watch = IdleWatch(600.0, lambda: [world.job(job)], lambda _: None)
    assert told(world, watch, 1_700.0) == []  # nobody has read them yet
    watch.read("a", [GpuSample(first, 0), GpuSample(second, 80)], 1_100.0)
    assert told(world, watch, 1_800.0) == []
    watch.read("a", [GpuSample(second, 4)], 1_800.0)
    assert told(world, watch, 2_399.0) == []
    assert told(world, watch, 2_400.0) == [inputs.GpusIdle(job, 1, 1_800.0)]
    watch.forget("a")
    assert told(world, watch, 2_500.0) == []  # not heard of is not at work
    watch.read("a", [GpuSample(first, 30), GpuSample(second, 0)], 2_600.0)
    assert told(world, watch, 2_600.0) == [inputs.GpusBusy(job, 1)]


def test_a_job_is_not_blamed_for_the_time_before_it() -> None:
    world = World()
    world.join("a")
    watch = IdleWatch(600.0, lambda: [world.job(1)], lambda _: None)
    watch.read("a", [GpuSample(f"GPU-a-{index}", 0) for index in range(8)], 0.0)
    job = world.submit(spec(1))
    world.tick()
    world.start(job)
    assert told(world, watch, 1_599.0) == []
    assert told(world, watch, 1_600.0) == [inputs.GpusIdle(job, 1, 1_000.0)]


def test_a_job_without_gpus_never_idles() -> None:
    world = World()
    world.join("a")
    job = world.submit(spec(0))
    world.tick()
    world.start(job)
    watch = IdleWatch(1.0, lambda: [world.job(job)], lambda _: None)
    assert told(world, watch, 9_000.0) == []
