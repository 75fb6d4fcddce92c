"""What waiting brings: wishes that are dropped, priorities that rise, and the end of others' hope."""

from __future__ import annotations

from dataclasses import replace

from controller.core import inputs
from controller.core.forecast import forecast, fork
from controller.core.gates import WaitRules
from tests.worlds import PIPELINE, World, spec
from wire.conditions import Dependency, Until
from wire.words import JobState, Reason

T0 = 1_000.0
PROMOTING = replace(PIPELINE, waiting=WaitRules(promote_after_s=100, promote_by=15, promote_most=75))


def two_models() -> World:
    world = World()
    world.join("a", model="H100")
    world.join("b", model="A100")
    return world


def test_a_wish_is_dropped_when_it_took_too_long() -> None:
    world = two_models()
    world.submit(spec(8, gpu_models=("H100",)))
    job = world.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    world.tick()
    assert world.tick_at(T0 + 59) == []
    assert [start.job for start in world.tick_at(T0 + 60)] == [job]
    assert world.nodes_of(job) == ["b"]
    assert world.job(job).spec.gpu_models == ("H100",)


def test_it_is_said_that_it_does_without() -> None:
    world = two_models()
    world.submit(spec(8))
    world.submit(spec(8))
    job = world.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    world.tick()
    world.tick_at(T0 + 60)
    assert world.why(job).reason is Reason.RESOURCES
    assert world.why(job).sentence.endswith("; does without gpu_models by now")


def test_what_only_fits_without_is_not_refused() -> None:
    world = two_models()
    job = world.submit(spec(1, selector={"disk": "tape"}, relax=("selector",), relax_after_s=60))
    assert world.tick() == []
    assert forecast(fork(world.engine), world.now).starts[job].at == T0 + 60
    assert [start.job for start in world.tick_at(T0 + 60)] == [job]
    assert world.refuse(inputs.Submit(spec(1, selector={"disk": "tape"}), "ada")).code == "never_fits"


def test_a_dropped_wish_stays_dropped_after_a_restart_of_the_controller() -> None:
    world = two_models()
    world.submit(spec(8))
    world.submit(spec(8))
    job = world.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    world.tick()
    world.tick_at(T0 + 60)
    assert fork(world.engine).state.jobs[job].ask == world.job(job).ask
    assert world.job(job).ask.part.models == ()


def test_who_waits_is_raised_step_by_step_up_to_a_ceiling() -> None:
    world = World(PROMOTING)
    world.join("a")
    world.submit(spec(8))
    low = world.submit(spec(8, priority=40))
    world.tick()
    seen = []
    for step in range(1, 5):
        world.tick_at(T0 + 100 * step)
        seen.append(world.job(low).priority)
    assert seen == [55, 70, 75, 75]
    assert world.why(low).sentence.endswith("its priority was raised from 40 to 75 for waiting")
    newer = world.submit(spec(8, priority=60))
    world.tell(inputs.Cancel(1, "ada"))
    world.exit(1, None, signal=15)
    assert [start.job for start in world.tick()] == [low]
    assert world.job(newer).state is JobState.QUEUED


def test_time_behind_a_gate_is_no_waiting() -> None:
    world = World(PROMOTING)
    world.join("a")
    world.submit(spec(8))
    job = world.submit(spec(8, begin_at=T0 + 250))
    world.tick_at(T0 + 250)
    world.tick_at(T0 + 349)
    assert world.job(job).priority == 50
    world.tick_at(T0 + 350)
    assert world.job(job).priority == 65


def test_who_waited_for_one_that_gave_up_starts_in_the_same_cycle() -> None:
    """Nothing else may happen for a long time after it."""
    world = World()
    world.join("a", gpus=8)
    world.submit(spec(8))
    world.tick()
    hopeless = world.submit(spec(8, start_within_s=60))
    job = world.submit(spec(0, after=(Dependency(Until.NOT_OK, str(hopeless)),)))
    assert [start.job for start in world.tick_at(T0 + 60)] == [job]
