"""All members of a gang are ready before any of them starts."""

from __future__ import annotations

from controller.core import inputs
from controller.core.records import job_of, job_row
from controller.core.state import State
from tests.worlds import World, spec
from wire.frames import AttemptStatus, Go, Stop
from wire.gangs import Gang, MemberFailure
from wire.words import JobState, Reason


def gang() -> tuple[World, int]:
    """Placed on a, b and c, and ordered there."""
    world = World()
    for name in "abc":
        world.join(name)
    job = world.submit(spec(3, nodes=3))
    assert [start.barrier for start in world.tick()] == [True] * 3
    world.sent.clear()
    return world, job


def ready(world: World, job: int, node: str) -> None:
    world.tell(inputs.AgentReported(node, AttemptStatus(job, world.job(job).attempt, ready=True)))


def sent(world: World, kind: type) -> list[str]:
    """To whom, since somebody last asked."""
    found = [each.node for each in world.sent if isinstance(each.frame, kind)]
    world.sent.clear()
    return found


def test_all_go_when_the_last_is_ready() -> None:
    world, job = gang()
    ready(world, job, "b")
    ready(world, job, "a")
    assert sent(world, Go) == []
    assert world.job(job).state is JobState.SCHEDULED
    ready(world, job, "c")
    assert sent(world, Go) == ["a", "b", "c"]
    world.start(job)
    assert world.job(job).state is JobState.RUNNING


def test_none_goes_when_one_cannot() -> None:
    world, job = gang()
    ready(world, job, "a")
    ready(world, job, "b")
    world.exit(job, None, "c", why="launch_failed: there is no user 'ada' on this host")
    assert [each for each in world.sent if isinstance(each.frame, Go)] == []
    assert sent(world, Stop) == ["a", "b"]
    for node in "ab":
        status = AttemptStatus(job, 1, ended_at=world.now, why="member_failed", ready=True)
        world.tell(inputs.AgentReported(node, status))
    assert sent(world, Go) == []
    assert (world.job(job).state, world.job(job).reason) == (JobState.FAILED, Reason.LAUNCH_FAILED)


def test_the_others_go_when_they_do_without_one_that_cannot() -> None:
    world = World()
    for name in "abc":
        world.join(name)
    how = Gang(min_nodes=2, on_failure=MemberFailure.CONTINUE)
    job = world.submit(spec(3, nodes=3, gang=how))
    world.tick()
    ready(world, job, "a")
    ready(world, job, "b")
    assert sent(world, Go) == []
    world.exit(job, None, "c", why="launch_failed: there is no user 'ada' on this host")
    assert sent(world, Go) == ["a", "b"]


def test_who_missed_the_word_is_told_again() -> None:
    world, job = gang()
    for node in "abc":
        ready(world, job, node)
    sent(world, Go)
    world.tell(inputs.AgentReported("a", AttemptStatus(job, 1, pid=5, started_at=world.now, ready=True)))
    world.tell(inputs.LinkWentDown("b", "cut"))
    world.join("b", attempts=(AttemptStatus(job, 1, ready=True),))
    assert sent(world, Go) == ["b", "c"]


def test_a_gang_that_is_cancelled_at_the_barrier_does_not_go() -> None:
    world, job = gang()
    ready(world, job, "a")
    ready(world, job, "b")
    world.tell(inputs.Cancel(job, "ada"))
    ready(world, job, "c")
    assert sent(world, Go) == []


def test_who_is_ready_survives_a_restart() -> None:
    world, job = gang()
    ready(world, job, "b")
    restored = job_of(job_row(world.job(job), with_spec=True))
    assert [node for node, member in restored.members.items() if member.ready] == ["b"]
    assert isinstance(world.state, State)


def test_a_job_on_one_node_has_nobody_to_wait_for() -> None:
    world = World()
    world.join("a")
    world.submit(spec(1))
    assert [start.barrier for start in world.tick()] == [False]
