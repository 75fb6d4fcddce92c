"""Jobs on several nodes: with how few they start, and what a lost member means to the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core import inputs
from controller.core.effects import SendToNode
from controller.core.events import JobShrunk
from controller.core.explain import explain_never
from controller.core.plugin import Backfill, Guards
from controller.core.quotas import Rules
from controller.plugins.preemption.priority import Priority
from controller.plugins.quotas.local import Local, Table
from tests.worlds import PIPELINE, World, spec
from wire.frames import AttemptStatus, Go, Stop
from wire.gangs import Gang, MemberFailure
from wire.spec import JobSpec, problems
from wire.words import JobState, Reason


def world_of(*nodes: str, **more: Any) -> World:
    world = World(replace(PIPELINE, **more))
    for name in nodes:
        world.join(name)
    return world


def gang(nodes: int, limit_s: float | None = None, **how: Any) -> JobSpec:
    """One whole node each."""
    return spec(8 * nodes, nodes=nodes, time_limit_s=limit_s, gang=Gang(**how))


def running(world: World, asked: JobSpec) -> int:
    job = world.submit(asked)
    world.tick()
    world.start(job)
    return job


BACKFILLS = [Backfill.EASY, Backfill.CONSERVATIVE]

# Four nodes, so many of them busy. Three are asked for. How many does it get?
TABLE = [
    ("all when all are there", 1, gang(3, min_nodes=2), 3),
    ("nothing less than all without a threshold", 2, gang(3), 0),
    ("what there is above the threshold", 2, gang(3, min_nodes=2), 2),
    ("nothing below it", 3, gang(3, min_nodes=2), 0),
    ("nothing yet while it waits for all", 2, gang(3, min_nodes=2, assembly_s=60), 0),
]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("busy", "asked", "got"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_on_how_many_nodes_it_starts(busy: int, asked: JobSpec, got: int, backfill: Backfill) -> None:
    world = world_of("a", "b", "c", "d", backfill=backfill)
    for _ in range(busy):
        running(world, spec(8))
    job = world.submit(asked)
    world.tick()
    assert len(world.nodes_of(job)) == got


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_it_waits_for_all_and_then_takes_what_there_is(backfill: Backfill) -> None:
    world = world_of("a", "b", backfill=backfill)
    first = running(world, spec(8))
    job = world.submit(gang(2, min_nodes=1, assembly_s=60))
    assert world.tick() == []
    why = world.engine.explain(world.job(job), world.now)
    assert why.reason is Reason.RESOURCES
    assert why.sentence.endswith("; 1 node will do in 1m00s")
    assert world.engine.next_at == world.now + 60
    world.now += 60
    (start,) = world.tick()
    assert (start.env["NNODES"], start.env["CORRAL_NODES"]) == ("1", "b")
    world.exit(first)
    assert world.tick() == []


# Two of four nodes are busy for 1000 s, and the first in the queue needs all four. Does a gang of three that
# does with two pass it under conservative backfill, and on how many nodes?
PASSING = [
    ("in part, if it is gone by then", gang(3, 900, min_nodes=2), 0, 2),
    ("not if it would stay", gang(3, 1100, min_nodes=2), 0, 0),
    ("not before it has waited for all", gang(3, 400, min_nodes=2, assembly_s=500), 0, 0),
    ("in part, once it has", gang(3, 400, min_nodes=2, assembly_s=500), 500, 2),
    ("not if it would stay by now", gang(3, 600, min_nodes=2, assembly_s=500), 500, 0),
]


@pytest.mark.parametrize(
    ("asked", "later_s", "got"), [row[1:] for row in PASSING], ids=[row[0] for row in PASSING]
)
def test_a_gang_has_the_promise_of_a_start_in_part(asked: JobSpec, later_s: float, got: int) -> None:
    world = world_of("a", "b", "c", "d", backfill=Backfill.CONSERVATIVE)
    for _ in range(2):
        running(world, spec(8, time_limit_s=1000))
    first = world.submit(gang(4, 100, min_nodes=None))
    job = world.submit(asked)
    world.tick()
    if later_s:
        assert (world.engine.next_at == world.now + later_s) == bool(got)
        world.tick_at(world.now + later_s)
    assert (len(world.nodes_of(job)), world.nodes_of(first)) == (got, [])


# A gang of three that does with two, and a limit of so many GPUs. How many nodes does it get?
WITHIN = [("all", 24, 3), ("as many as it may have", 16, 2)]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("most", "got"), [row[1:] for row in WITHIN], ids=[row[0] for row in WITHIN])
def test_a_quota_on_less_than_all_leaves_the_rest(most: int, got: int, backfill: Backfill) -> None:
    rules = Rules(provider=Local(users={"*": Table(gpus=most)}))
    world = world_of("a", "b", "c", backfill=backfill, rules=rules)
    job = world.submit(gang(3, min_nodes=2))
    world.tick()
    assert len(world.nodes_of(job)) == got
    other = world.submit(gang(3, min_nodes=2, assembly_s=60))
    world.tick()
    why = world.why(other)
    assert why.reason is Reason.QUOTA
    assert why.sentence.endswith("2 nodes will do in 1m00s")


def test_a_quota_below_the_threshold_refuses() -> None:
    world = world_of("a", "b", "c", rules=Rules(provider=Local(users={"*": Table(gpus=15)})))
    assert world.refuse(inputs.Submit(gang(3, min_nodes=2), "ada")).code == "over_quota"


def test_all_may_come_before_the_time_is_up() -> None:
    world = world_of("a", "b")
    first = running(world, spec(8))
    job = world.submit(gang(2, min_nodes=1, assembly_s=60))
    world.tick()
    world.exit(first)
    assert len(world.tick()) == 2
    assert world.nodes_of(job) == ["a", "b"]


def test_a_cluster_that_never_has_all_does_with_what_it_has() -> None:
    world = world_of("a", "b")
    assert explain_never(world.engine.placer, world.state.ask(gang(3))) is not None
    job = world.submit(gang(3, min_nodes=2))
    assert len(world.tick()) == 2
    assert world.job(job).state is JobState.SCHEDULED


def test_the_others_go_on_and_enough_of_them_end_well() -> None:
    world = world_of("a", "b", "c")
    job = running(world, gang(3, min_nodes=2, on_failure=MemberFailure.CONTINUE))
    world.exit(job, 5, node="b")
    assert (world.job(job).state, world.stops()) == (JobState.RUNNING, [])
    other = world.submit(spec(8))
    assert [start.job for start in world.tick()] == [other]
    world.exit(job, 0, node="a")
    world.exit(job, 0, node="c")
    assert (world.job(job).state, world.job(job).detail) == (JobState.COMPLETED, "2 of 3 members ended well")


def test_when_too_few_are_left_all_are_ended() -> None:
    world = world_of("a", "b", "c")
    job = running(world, gang(3, min_nodes=2, on_failure=MemberFailure.CONTINUE))
    world.exit(job, 5, node="b")
    world.exit(job, 6, node="c")
    assert world.stops() == [("a", job)]
    world.exit(job, None, node="a", signal=15, why="member_failed")
    assert (world.job(job).state, world.job(job).code) == (JobState.FAILED, 5)


def test_the_others_do_without_one_that_never_started() -> None:
    world = world_of("a", "b")
    job = world.submit(gang(2, min_nodes=1, on_failure=MemberFailure.CONTINUE))
    world.tick()
    begun = AttemptStatus(job, 1, 7, world.now)
    world.tell(inputs.AgentReported("a", begun))
    world.now += 5
    world.tell(inputs.AgentReported("b", AttemptStatus(job, 1, ended_at=world.now, why="launch_failed: no")))
    assert (world.job(job).state, world.job(job).started_at) == (JobState.RUNNING, world.now - 5)
    world.exit(job, 0, node="a")
    assert world.job(job).state is JobState.COMPLETED


def test_one_that_fails_to_start_after_the_others_are_done() -> None:
    world = world_of("a", "b")
    job = world.submit(gang(2, min_nodes=1, on_failure=MemberFailure.CONTINUE))
    world.tick()
    world.exit(job, 0, node="a")
    world.tell(inputs.AgentReported("b", AttemptStatus(job, 1, ended_at=world.now, why="launch_failed: no")))
    assert world.job(job).state is JobState.COMPLETED


def test_all_start_anew_but_not_for_ever() -> None:
    world = world_of("a", "b")
    job = world.submit(gang(2, on_failure=MemberFailure.RESTART))
    for attempt in (1, 2, 3, 4):
        world.now += 3_600
        assert {start.attempt for start in world.tick()} == {attempt}
        world.start(job)
        world.exit(job, 5, node="b")
        assert world.stops()[-1] == ("a", job)
        world.exit(job, None, node="a", signal=15, why="member_failed")
    assert (world.job(job).state, world.job(job).code) == (JobState.FAILED, 5)


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (spec(gang=Gang(min_nodes=2)), "gang.min_nodes"),
        (spec(nodes=2, gang=Gang(min_nodes=3)), "gang.min_nodes"),
        (spec(nodes=2, gang=Gang(assembly_s=5.0)), "gang.assembly_s"),
        (spec(nodes=2, gang=Gang(min_nodes=1, assembly_s=-1.0)), "gang.assembly_s"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: JobSpec, where: str) -> None:
    assert [each for each, _ in problems(asked)] == [where]


ELASTIC = {"min_nodes": 1, "elastic": True}


def pressed(*nodes: str) -> World:
    """A cluster on which the more important have others ended."""
    guards = Guards(min_runtime_s=0.0)
    world = World(replace(PIPELINE, strategies=(Priority(),), guards=guards))
    for name in nodes:
        world.join(name)
    return world


def test_an_elastic_job_gives_up_a_node_instead_of_being_preempted() -> None:
    world = pressed("a", "b", "c")
    job = running(world, gang(3, **ELASTIC))
    world.now += 3_600
    high = world.submit(spec(8, priority=75))
    assert world.tick() == []
    (shrunk,) = [event for event in world.events if isinstance(event, JobShrunk)]
    assert (shrunk.job, shrunk.nodes, shrunk.gpu_hours) == (job, ("b",), 8.0)
    assert world.stops() == [("b", job)]
    world.exit(job, None, node="b", signal=15, why="shrunk")
    assert world.job(job).state is JobState.RUNNING
    assert [start.job for start in world.tick()] == [high]
    world.exit(job, 0, node="a")
    world.exit(job, 0, node="c")
    assert world.job(job).state is JobState.COMPLETED


def test_it_is_preempted_whole_when_it_cannot_do_with_less() -> None:
    world = pressed("a", "b")
    job = running(world, gang(2, min_nodes=2, elastic=True))
    world.submit(spec(8, priority=75))
    world.tick()
    assert sorted(world.stops()) == [("a", job), ("b", job)]


def test_it_keeps_its_first_node_and_as_many_as_it_needs() -> None:
    world = pressed("a", "b", "c")
    job = running(world, gang(3, min_nodes=2, elastic=True))
    world.now += 3_600
    for _ in range(2):
        world.submit(spec(8, priority=75))
    world.tick()
    assert world.stops()[0] == ("b", job)
    assert world.job(job).stopping is Reason.PREEMPTED
    assert len(world.stops()) == 4  # the second had all of it ended


def test_a_gang_takes_several_nodes_of_one_elastic_job() -> None:
    world = pressed("a", "b", "c")
    job = running(world, gang(3, **ELASTIC))
    world.now += 3_600
    high = world.submit(spec(16, nodes=2, priority=75))
    world.tick()
    assert sorted(world.stops()) == [("b", job), ("c", job)]
    for node in ("b", "c"):
        world.exit(job, None, node=node, signal=15, why="shrunk")
    world.tick()
    assert world.nodes_of(high) == ["b", "c"]


def test_an_elastic_job_grows_while_nobody_waits() -> None:
    world = world_of("a", "b", "c")
    other = running(world, spec(8))
    job = running(world, gang(3, **ELASTIC))
    assert world.nodes_of(job) == ["b", "c"]
    waiting = world.submit(spec(8, hold=True))
    world.exit(other)
    (start,) = world.tick()
    assert (start.job, start.attempt, start.env["CORRAL_NODES"]) == (job, 1, "b,c,a")
    assert (start.env["CORRAL_MIN_NODES"], start.env["CORRAL_MAX_NODES"]) == ("1", "3")
    assert world.job(job).state is JobState.RUNNING
    world.tell(inputs.AgentReported("a", AttemptStatus(job, 1, ready=True)))
    assert world.sent[-1] == SendToNode("a", Go(job, 1))
    world.tell(inputs.AgentReported("a", AttemptStatus(job, 1, 7, world.now)))
    world.tell(inputs.Release(waiting, "ada"))
    assert world.tick() == []
    world.exit(job)
    assert world.job(job).state is JobState.COMPLETED


def test_an_elastic_job_does_not_grow_once_it_is_about_to_end() -> None:
    world = world_of("a", "b")
    job = running(world, gang(3, **ELASTIC))
    world.exit(job, 0, node="b")
    world.join("c")
    assert world.tick() == []
    world.exit(job, 0, node="a")
    assert world.job(job).state is JobState.COMPLETED


def test_an_elastic_job_that_does_without_failed_members_grows_in_their_place() -> None:
    world = world_of("a", "b")
    job = running(world, gang(2, **ELASTIC, on_failure=MemberFailure.CONTINUE))
    world.exit(job, 1, node="b")
    world.join("c")
    assert [start.env["CORRAL_NODE"] for start in world.tick()] == ["c"]


def test_others_who_wait_come_before_an_elastic_job_that_would_grow() -> None:
    world = world_of("a", "b")
    other = running(world, spec(8))
    running(world, gang(2, **ELASTIC))
    waiting = world.submit(spec(8))
    world.tick()
    world.exit(other)
    assert [start.job for start in world.tick()] == [waiting]


def test_where_it_has_been_it_does_not_come_back() -> None:
    world = pressed("a", "b")
    job = running(world, gang(2, **ELASTIC))
    world.now += 3_600
    high = world.submit(spec(8, priority=75))
    world.tick()
    world.exit(job, None, node="b", signal=15, why="shrunk")
    world.tick()
    world.start(high)
    world.exit(high)
    assert world.tick() == []
    world.join("c")
    assert [(start.job, start.env["CORRAL_NODES"]) for start in world.tick()] == [(job, "a,c")]


def test_an_order_to_leave_that_never_arrived_is_sent_again() -> None:
    world = pressed("a", "b")
    job = running(world, gang(2, **ELASTIC))
    world.now += 3_600
    world.submit(spec(8, priority=75))
    world.tick()
    world.sent.clear()
    world.join("b", attempts=(AttemptStatus(job, 1, 7, 1.0),))
    assert world.stops() == [("b", job)]


def test_a_member_that_is_to_leave_before_its_agent_has_heard_of_it_is_not_started_after_all() -> None:
    world = pressed("a")
    job = running(world, gang(2, **ELASTIC))
    world.join("b")
    assert [start.job for start in world.tick()] == [job]  # it grows; neither word to b arrives
    world.now += 3_600
    world.submit(spec(8, priority=75))
    world.tick()
    assert world.stops() == [("b", job)]
    world.sent.clear()
    world.join("b")
    assert [type(sent.frame) for sent in world.sent] == [Stop]
