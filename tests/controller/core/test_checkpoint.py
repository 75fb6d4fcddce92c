"""What an attempt saved is on record, survives a restart, and is what the next attempt is told of."""

from __future__ import annotations

from controller.core.launch import starts_of
from controller.core.records import job_of, job_row
from tests.worlds import World, spec
from wire.frames import Checkpoint

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
