"""What an attempt saved is on record, survives a restart, and is what the next attempt is told of."""

from __future__ import annotations

from dataclasses import replace

from controller.core import inputs
from controller.core.launch import starts_of
from controller.core.plugin import Guards
from controller.core.records import job_of, job_row
from controller.plugins.preemption.priority import Priority as ByPriority
from tests.worlds import PIPELINE, World, spec
from wire.conditions import Dependency, Restart, RestartWhen, Until
from wire.frames import AttemptStatus, Checkpoint

OLD, NEW = Checkpoint("/shared/1/step-1", 10, 1_000.0), Checkpoint("/shared/1/step-2", 20, 2_000.0)


def ended(saved: Checkpoint | None = None, **more: object) -> tuple[World, int]:
    """A job on node a, over."""
    world = World()
    world.join("a")
    job = world.submit(spec(1, **more))
    world.tick()
    world.start(job)
    world.exit(job, 1, checkpoint=saved)
    return world, job


def test_a_checkpoint_is_on_the_record_and_in_the_next_order() -> None:
    world, job = ended(NEW)
    assert world.job(job).checkpoint == NEW
    assert job_of(job_row(world.job(job), with_spec=True)).checkpoint == NEW
    (start,) = starts_of(world.job(job), {"a": "127.0.0.1"}).values()
    assert start.checkpoint == NEW


def test_what_saves_and_warns_is_in_the_order() -> None:
    world = World()
    world.join("a")
    world.submit(spec(1, checkpoint_command=("save",), checkpoint_signal="SIGUSR1", warn_signal="usr2"))
    (start,) = world.tick()
    assert (start.checkpoint_command, start.checkpoint_signal, start.warn_signal) == (
        ("save",),
        "USR1",
        "USR2",
    )
    assert start.checkpoint is None


def test_of_a_gang_the_newest_counts() -> None:
    world = World()
    world.join("a")
    world.join("b")
    job = world.submit(spec(2, nodes=2))
    world.tick()
    world.start(job)
    world.exit(job, 0, node="b", checkpoint=NEW)
    world.exit(job, 0, node="a", checkpoint=OLD)
    assert world.job(job).checkpoint == NEW


def saved(world: World, job: int, found: Checkpoint, node: str = "a") -> None:
    """The agent tells what a job that runs has saved."""
    status = AttemptStatus(job, world.job(job).attempt, 100 + job, 1_000.0, checkpoint=found)
    world.tell(inputs.AgentReported(node, status))


def test_what_is_saved_live_is_not_lost_to_preemption() -> None:
    world = World()
    world.join("a")
    job = world.submit(spec(8))
    world.tick()
    world.start(job)
    world.now = 1_000.0 + 7_200.0
    assert world.job(job).unsaved(world.now) == 16.0
    saved(world, job, Checkpoint("/shared/1/step-9", 10, world.now - 900.0))
    assert world.job(job).unsaved(world.now) == 2.0
    assert world.restarted().job(job).unsaved(world.now) == 2.0
    world.tell(inputs.Preempt(job, "root"))
    world.exit(job, None, signal=15, why="preempted")
    [ended] = world.job(job).preemptions
    assert ended.gpu_hours == 2.0


def test_what_was_saved_before_the_host_was_lost_is_what_the_next_attempt_gets() -> None:
    world = World()
    world.join("a")
    job = world.submit(spec(1, restart=Restart(RestartWhen.ALWAYS, 1)))
    world.tick()
    world.start(job)
    world.now += 600.0
    saved(world, job, Checkpoint("/shared/1/step-1", 10, world.now - 60.0))
    world.exit(job, 1)
    world.now += 600.0
    [start] = world.tick()
    assert start.checkpoint == Checkpoint("/shared/1/step-1", 10, 1_540.0)


def test_news_are_told_once_and_never_from_the_future() -> None:
    world = World()
    world.join("a")
    job = world.submit(spec(1))
    world.tick()
    world.start(job)
    found = Checkpoint("/shared/1/step-1", 10, 900.0)
    saved(world, job, found)
    before = len(world.events)
    saved(world, job, found)
    saved(world, job, Checkpoint("/shared/1/step-0", 10, 800.0))
    assert len(world.events) == before
    saved(world, job, Checkpoint("/shared/1/step-2", 10, 5_000.0))
    assert world.job(job).checkpoint == Checkpoint("/shared/1/step-2", 10, world.now)


def test_who_waits_for_a_checkpoint_starts_while_the_job_still_runs() -> None:
    world = World()
    world.join("a")
    first = world.submit(spec(1))
    second = world.submit(spec(1, after=(Dependency(Until.CHECKPOINT, str(first)),)))
    world.tick()
    world.start(first)
    assert world.tick() == []
    saved(world, first, Checkpoint("/shared/1/step-1", 10, world.now))
    assert [start.job for start in world.tick()] == [second]


def test_who_has_just_saved_makes_room_first() -> None:
    world = World(replace(PIPELINE, strategies=(ByPriority(),), guards=Guards(min_runtime_s=0.0)))
    world.join("a", gpus=2)
    first, second = world.submit(spec(1, priority=10)), world.submit(spec(1, priority=10))
    world.tick()
    for job in (first, second):
        world.start(job)
    world.now += 3_600.0
    saved(world, second, Checkpoint("/shared/2/step-1", 10, world.now - 10.0))
    world.submit(spec(1, priority=75))
    world.tick()
    assert world.stops() == [("a", second)]
