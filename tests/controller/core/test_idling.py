"""A job that lets its GPUs do nothing is flagged, told, and ended where the site wants them back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs
from controller.core.events import IdleEnded, IdleNoted
from controller.core.idling import Idling, Reclaim
from controller.core.records import job_of, job_row
from tests.worlds import PIPELINE, World, spec
from wire.frames import Note, Stop
from wire.words import JobState, Reason


def idle_job(reclaim: Reclaim = Reclaim.FLAG, **more: object) -> tuple[World, int]:
    """A job with two GPUs that has run for an hour, the last 40 minutes of it without using them."""
    world = World(replace(PIPELINE, idling=Idling(1_800.0, reclaim, 600.0)))
    world.join("a")
    job = world.submit(spec(2, **more))
    world.tick()
    world.start(job)
    world.now += 3_600.0
    tell_idle(world, job)
    return world, job


def tell_idle(world: World, job: int, attempt: int = 1) -> None:
    world.tell(inputs.GpusIdle(job, attempt, 1_000.0 + 1_200.0))


def test_a_job_that_idles_is_flagged_once_and_told_so() -> None:
    world, job = idle_job()
    tell_idle(world, job)
    assert [type(each) for each in world.events].count(IdleNoted) == 1
    assert [sent.frame for sent in world.sent if isinstance(sent.frame, Note)] == [
        Note(job, 1, "its GPUs have done nothing for 40m00s")
    ]
    assert world.job(job).reason is Reason.IDLE
    assert world.why(job).sentence == "running on a; its GPUs have done nothing for 40m00s"
    kept = job_of(job_row(world.job(job), with_spec=True))
    assert (kept.idle_since, kept.reason) == (2_200.0, Reason.IDLE)


def test_a_host_that_reboots_before_an_idle_job_has_ended_does_not_run_it_again() -> None:
    world, job = idle_job(Reclaim.REQUEUE)
    world.now += 600.0
    tell_idle(world, job)
    assert world.stops() == [("a", job)]
    world.join("a", boot="b2")
    assert (world.job(job).state, world.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_job_that_works_again_is_let_alone() -> None:
    world, job = idle_job(Reclaim.CANCEL)
    world.now += 300.0
    world.tell(inputs.GpusBusy(job, 1))
    assert isinstance(world.events[-1], IdleEnded)
    assert (world.job(job).idle_since, world.job(job).reason) == (None, Reason.NONE)
    world.now += 600.0
    tell_idle(world, job)  # from now on it is a new story, with a grace of its own
    assert world.stops() == []


def test_flagged_is_all_that_happens_unless_the_site_says_otherwise() -> None:
    world, job = idle_job()
    world.now += 86_400.0
    tell_idle(world, job)
    assert world.stops() == []


@pytest.mark.parametrize(
    ("reclaim", "state", "saves"),
    [(Reclaim.REQUEUE, JobState.QUEUED, True), (Reclaim.CANCEL, JobState.CANCELLED, False)],
)
def test_after_its_grace_it_saves_and_makes_way(reclaim: Reclaim, state: JobState, saves: bool) -> None:
    world, job = idle_job(reclaim, checkpoint_signal="USR1" if saves else "")
    assert "it will be ended in 10m00s if that does not change" in world.why(job).sentence
    world.now += 599.0
    tell_idle(world, job)
    assert world.stops() == []
    world.now += 1.0
    tell_idle(world, job)
    [stop] = [sent.frame for sent in world.sent if isinstance(sent.frame, Stop)]
    assert (stop.why, stop.checkpoint_s) == ("idle", 60.0 if saves else 0.0)
    tell_idle(world, job)
    assert len(world.stops()) == 1
    world.exit(job, None, signal=15, why="idle")
    ended = world.job(job)
    assert (ended.state, ended.reason, ended.idle_since) == (state, Reason.IDLE, None)
    assert "its GPUs did nothing for 50m00s" in ended.detail


def test_one_that_ended_well_meanwhile_is_completed() -> None:
    world, job = idle_job(Reclaim.CANCEL)
    world.now += 600.0
    tell_idle(world, job)
    world.exit(job, 0)
    assert world.job(job).state is JobState.COMPLETED


def test_what_is_told_of_an_attempt_that_is_over_changes_nothing() -> None:
    world, job = idle_job()
    before = len(world.events)
    tell_idle(world, job, attempt=2)
    world.tell(inputs.GpusBusy(job, 2))
    tell_idle(world, 99)
    assert len(world.events) == before
