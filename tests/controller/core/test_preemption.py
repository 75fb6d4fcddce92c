"""Who is ended for whom, what it costs, and that nobody is ended in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs
from controller.core.check import check
from controller.core.dues import changing_hands
from controller.core.events import JobPlaced, JobPreempted, PreemptionDropped, PreemptionPlanned
from controller.core.forecast import forecast, fork
from controller.core.plugin import Backfill, Guards
from controller.plugins.preemption.pressure import Pressure
from controller.plugins.preemption.priority import Priority
from tests.worlds import PIPELINE, World, spec
from wire.affinity import term_of
from wire.frames import AttemptStatus, Stop
from wire.gangs import Gang
from wire.gpuwish import GpuWish
from wire.spec import JobSpec
from wire.words import GpuHealth, JobState, Reason

HOUR = 3600.0
BY_PRIORITY = Priority()
UNGUARDED = Guards(min_runtime_s=0.0, cooldown_s=0.0)


def world_of(
    *nodes: str, guards: Guards = UNGUARDED, priority: Priority = BY_PRIORITY, **more: object
) -> World:
    world = World(replace(PIPELINE, strategies=(priority,), guards=guards, **more))
    for name in nodes or ("a",):
        world.join(name)
    return world


def running(world: World, asked: JobSpec, hours: float = 0.0) -> int:
    """A job that has started, and that much time passed since."""
    job = world.submit(asked)
    world.tick()
    world.start(job)
    world.now += hours * HOUR
    return job


def plans(world: World) -> list[tuple[int, list[int]]]:
    """(for whom, who) of every plan so far."""
    return [
        (event.job, [victim.job for victim in event.victims])
        for event in world.events
        if isinstance(event, PreemptionPlanned)
    ]


def leave(world: World, job: int) -> None:
    """The agents do as they were told."""
    world.exit(job, None, signal=15, why="preempted")


def test_the_less_important_makes_room_and_is_queued_again_in_its_old_place() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25), hours=2)
    behind = world.submit(spec(8, priority=25))
    high = world.submit(spec(4, priority=75))
    assert world.tick() == []
    assert plans(world) == [(high, [low])]
    assert world.stops() == [("a", low)]
    assert (world.job(low).state, world.job(low).reason) == (JobState.RUNNING, Reason.GRACE)
    assert (world.job(high).state, world.job(high).reason) == (JobState.QUEUED, Reason.PREEMPTING)
    leave(world, low)
    assert (world.job(low).state, world.job(low).reason) == (JobState.QUEUED, Reason.PREEMPTED)
    assert [start.job for start in world.tick()] == [high]
    assert world.state.queue.ahead(low) == 0
    assert world.state.queue.ahead(behind) == 1
    (lost,) = world.job(low).preemptions
    assert (lost.by, lost.gpu_hours) == (f"job {high}", 16.0)
    world.start(high)
    world.exit(high)
    assert [(start.job, start.attempt) for start in world.tick()] == [(low, 2)]


# A full node of 8 GPUs: jobs as (GPUs, priority, hours it has run), in the order of their start.
# Somebody of priority 75 comes and asks for so many GPUs: these are ended.
TABLE = [
    ("the one that loses least", [(4, 25, 3), (4, 25, 1)], 4, [2]),
    ("the small old one loses less than the big young one", [(2, 25, 2), (6, 25, 1)], 2, [1]),
    ("two young ones rather than one old", [(4, 25, 9), (2, 25, 1), (2, 25, 1)], 4, [2, 3]),
    ("nobody who is not needed", [(1, 25, 1), (1, 25, 1), (6, 25, 3)], 6, [3]),
    ("everybody if need be", [(4, 25, 2), (4, 25, 1)], 8, [1, 2]),
    ("no equal", [(8, 75, 1)], 4, None),
    ("only the lower of two", [(4, 74, 5), (4, 75, 1)], 4, [1]),
    ("not if even all that may be ended are not enough", [(4, 25, 1), (4, 75, 1)], 8, None),
    ("what is free already counts", [(6, 25, 1)], 8, [1]),
]


@pytest.mark.parametrize(
    ("there", "gpus", "ended"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_who_is_ended(there: list[tuple[int, int, float]], gpus: int, ended: list[int] | None) -> None:
    world = world_of("a")
    begin = world.now
    for number, (count, priority, hours) in enumerate(there):
        world.now = begin + (10 - hours) * HOUR
        running(world, spec(count, priority=priority, name=str(number + 1)))
    world.now = begin + 10 * HOUR
    high = world.submit(spec(gpus, priority=75))
    world.tick()
    assert plans(world) == ([] if ended is None else [(high, ended)])


def test_the_node_where_least_is_lost_is_taken() -> None:
    world = world_of("a", "b", "c")
    for hours in (1, 2, 3):
        running(world, spec(8, priority=25), hours=hours)
    running_b = world.nodes_of(3)
    high = world.submit(spec(8, priority=75))
    world.tick()
    assert plans(world) == [(high, [3])]
    assert [each.node for each in world.job(high).claim] == running_b


def test_a_gang_gets_its_room_on_several_nodes_or_nobody_is_ended() -> None:
    world = world_of("a", "b", "c")
    running(world, spec(8, priority=25), hours=5)
    running(world, spec(8, priority=25), hours=1)
    running(world, spec(8, priority=75), hours=1)
    world.submit(spec(24, nodes=3, priority=75))
    world.tick()
    assert plans(world) == []
    world.tell(inputs.Cancel(4, "ada"))
    gang = world.submit(spec(16, nodes=2, priority=75))
    world.tick()
    assert plans(world) == [(gang, [1, 2])]
    leave(world, 1)
    assert world.tick() == []
    leave(world, 2)
    assert {start.job for start in world.tick()} == {gang}


def test_a_gang_that_is_ended_for_one_of_its_nodes_ends_whole() -> None:
    world = world_of("a", "b")
    gang = running(world, spec(16, nodes=2, priority=25), hours=1)
    high = world.submit(spec(8, priority=75))
    world.tick()
    assert sorted(world.stops()) == [("a", gang), ("b", gang)]
    world.exit(gang, None, node="a", signal=15, why="preempted")
    assert [start.job for start in world.tick()] == [high]
    leave_b = world.submit(spec(8, priority=10))
    world.exit(gang, None, node="b", signal=15, why="preempted")
    assert world.job(gang).state is JobState.QUEUED
    assert [start.job for start in world.tick()] == [leave_b]


def test_what_is_freed_is_for_nobody_else() -> None:
    world = world_of("a")
    for _ in range(2):
        running(world, spec(4, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    leave(world, 1)
    passing = world.submit(spec(1, priority=100))
    small = world.submit(spec(1, priority=0, time_limit_s=1.0))
    assert world.tick() == []
    leave(world, 2)
    assert [start.job for start in world.tick()] == [high]
    assert {world.job(job).state for job in (passing, small)} == {JobState.QUEUED}


def test_what_is_left_over_may_be_had_by_others() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(2, priority=75))
    world.tick()
    other = world.submit(spec(6, priority=50))
    leave(world, low)
    assert sorted(start.job for start in world.tick()) == [high, other]


def test_a_job_that_came_to_its_end_meanwhile_is_not_run_again() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    world.exit(low, 0)
    assert world.job(low).state is JobState.COMPLETED
    assert [start.job for start in world.tick()] == [high]


GUARDS = [
    ("before it has run long enough", Guards(min_runtime_s=7_200.0), spec(8, priority=25)),
    ("before it has run as long as it asked for", Guards(min_runtime_s=0.0), spec(8, min_runtime_s=7_200.0)),
    ("when it does not want to", UNGUARDED, spec(8, preemptible=False)),
    ("when too many were ended within the window", Guards(min_runtime_s=0.0, rate=1), spec(4)),
]


@pytest.mark.parametrize(("guards", "asked"), [row[1:] for row in GUARDS], ids=[row[0] for row in GUARDS])
def test_a_job_is_not_ended(guards: Guards, asked: JobSpec) -> None:
    world = world_of("a", guards=guards)
    running(world, asked)
    if asked.gpus == 4:
        running(world, asked)
    world.now += HOUR
    world.submit(spec(8, priority=75))
    world.tick()
    assert plans(world) == []


def test_time_alone_makes_it_possible() -> None:
    world = world_of("a", guards=Guards(min_runtime_s=HOUR))
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    assert world.engine.cycle.preemption.again_at == world.now + HOUR
    world.now += HOUR
    world.tick()
    assert plans(world) == [(high, [low])]


def test_nobody_is_ended_more_often_than_allowed_nor_again_at_once() -> None:
    world = world_of("a", guards=Guards(min_runtime_s=0.0, cooldown_s=HOUR, max_per_job=2))
    low = running(world, spec(8, priority=25, min_runtime_s=0.0))
    for _ in range(3):
        high = world.submit(spec(8, priority=75))
        world.tick()
        if world.job(low).stopping is None:
            world.now += HOUR
            world.tick()
        if world.job(low).stopping is None:
            break
        leave(world, low)
        world.tick()
        world.start(high)
        world.exit(high)
        world.tick()
        world.start(low)
    assert len(world.job(low).preemptions) == 2
    times = [each.at for each in world.job(low).preemptions]
    assert times[1] - times[0] >= HOUR


def test_what_was_saved_is_not_lost() -> None:
    world = world_of("a", "b")
    running(world, spec(8, priority=25), hours=1)
    saved = running(world, spec(8, priority=25, checkpoint_signal="USR1"), hours=4)
    job = world.job(saved)
    world.job(saved).checkpoint = None
    high = world.submit(spec(8, priority=75))
    world.tick()
    assert plans(world) == [(high, [saved])]
    (plan,) = [event for event in world.events if isinstance(event, PreemptionPlanned)]
    assert plan.victims[0].gpu_hours == 32.0
    (stop,) = [sent.frame for sent in world.sent if isinstance(sent.frame, Stop)]
    assert (stop.why, stop.grace_s, stop.checkpoint_s) == ("preempted", 60.0, 60.0)
    assert plan.by == world.now + 120.0
    assert job.stop_by == plan.by


def test_a_claim_ends_with_its_node_and_its_gpu() -> None:
    for break_it in (
        lambda world: world.tell_drain("a"),
        lambda world: world.tell(inputs.LinkWentDown("a", "cut")),
        lambda world: world.tell(inputs.GpuReported("a", "GPU-a-3", GpuHealth.LOST, "xid")),
        lambda world: world.join("a", boot="b2", gpus=4, attempts=(AttemptStatus(1, 1, 7, 1.0),)),
    ):
        world = world_of("a")
        running(world, spec(8, priority=25))
        high = world.submit(spec(8, priority=75))
        world.tick()
        break_it(world)
        world.tick()
        assert any(isinstance(event, PreemptionDropped) for event in world.events)
        assert not world.state.claims
        assert world.job(high).state is JobState.QUEUED


def test_who_no_longer_wants_the_room_gives_it_back() -> None:
    for ask in (inputs.Cancel, inputs.Hold):
        world = world_of("a")
        low = running(world, spec(8, priority=25))
        high = world.submit(spec(8, priority=75))
        world.tick()
        world.tell(ask(high, "ada"))
        leave(world, low)
        assert [start.job for start in world.tick()] == [low]


def test_cancelling_a_job_that_makes_room_ends_it_for_good() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    world.tell(inputs.Cancel(low, "ada"))
    world.exit(low, None, signal=15, why="preempted")
    assert world.job(low).state is JobState.CANCELLED
    assert [start.job for start in world.tick()] == [high]


def test_a_host_that_reboots_meanwhile_does_not_run_it_again() -> None:
    """It may have come to its end, unheard of, before the host went down."""
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    world.submit(spec(8, priority=75))
    world.tick()
    world.join("a", boot="b2")
    assert (world.job(low).state, world.job(low).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_an_operator_has_a_job_ended_and_may_hold_it_back() -> None:
    world = World()
    world.join("a")
    job = running(world, spec(8))
    world.tell(inputs.Preempt(job, "root", hold=True))
    assert world.refuse(inputs.Preempt(job, "root")).code == "conflict"
    assert world.job(job).reason is Reason.GRACE
    leave(world, job)
    assert (world.job(job).state, world.job(job).held) == (JobState.QUEUED, True)
    assert world.job(job).detail == "preempted by root"
    assert world.refuse(inputs.Preempt(job, "root")).code == "conflict"
    assert world.refuse(inputs.Preempt(99, "root")).code == "not_found"
    world.tell(inputs.Release(job, "root"))
    assert [start.attempt for start in world.tick()] == [2]


def test_who_may_not_make_others_leave_waits() -> None:
    world = world_of("a", priority=Priority(least=75, gap=50))
    running(world, spec(8, priority=50))
    world.submit(spec(8, priority=60))
    world.submit(spec(8, priority=99))
    world.tick()
    assert plans(world) == []
    critical = world.submit(spec(8, priority=100))
    world.tick()
    assert plans(world) == [(critical, [1])]


def test_jobs_that_use_what_is_left_over_make_room_for_all_others() -> None:
    world = World(replace(PIPELINE, strategies=(Pressure(),), guards=UNGUARDED))
    world.join("a")
    scavenger, normal = running(world, spec(4, priority=0)), running(world, spec(4, priority=50))
    world.submit(spec(4, priority=10))
    world.tick()
    assert plans(world) == []
    slightly = world.submit(spec(4, priority=25))
    world.submit(spec(4, priority=100))
    world.tick()
    assert [victims for _, victims in plans(world)] == [[scavenger]]
    assert world.job(normal).stopping is None
    assert world.job(slightly).reason is not Reason.PREEMPTING  # the more important came first


@pytest.mark.parametrize("mode", list(Backfill))
def test_it_does_not_matter_who_may_pass_whom(mode: Backfill) -> None:
    world = world_of("a", "b", backfill=mode)
    for _ in range(2):
        running(world, spec(8, priority=25, time_limit_s=5 * HOUR), hours=0.5)
    waiting = world.submit(spec(8, priority=25, time_limit_s=HOUR))
    high = [world.submit(spec(8, priority=75, time_limit_s=HOUR)) for _ in range(2)]
    world.tick()
    assert sorted(plans(world)) == [(high[0], [2]), (high[1], [1])]
    leave(world, 1)
    leave(world, 2)
    assert sorted(start.job for start in world.tick()) == high
    assert world.job(waiting).state is JobState.QUEUED


def test_explain_tells_for_whom_and_until_when() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    why = world.engine.explain(world.job(high), world.now)
    assert why.reason is Reason.PREEMPTING
    assert why.sentence == f"starts on a as soon as job {low} has made room, in 1m00s at the latest"
    assert world.engine.explain(world.job(low), world.now).sentence == f"makes room: preempted by job {high}"
    leave(world, low)
    assert world.engine.explain(world.job(high), world.now).sentence == "starts on a in the next cycle"


def test_the_forecast_ends_them_too() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25, time_limit_s=5 * HOUR), hours=1)
    urgent = inputs.Submit(spec(8, priority=75, time_limit_s=HOUR), "bo")
    ahead = forecast(fork(world.engine), world.now, [urgent])
    assert [(plan.job, plan.victims[0].job, plan.victims[0].gpu_hours) for plan in ahead.plans] == [
        (2, low, 8.0)
    ]
    assert ahead.starts[2].at == world.now + 60.0
    assert ahead.starts[low].at == world.now + 60.0 + HOUR
    assert plans(world) == []


def test_every_start_keeps_what_was_said() -> None:
    world = world_of("a")
    running(world, spec(8, priority=25))
    world.submit(spec(4, priority=75))
    world.tick()
    leave(world, 1)
    world.tick()
    (plan,) = [event for event in world.events if isinstance(event, PreemptionPlanned)]
    placed = [event for event in world.events if isinstance(event, JobPlaced)][-1]
    assert placed.allocations == plan.allocations
    assert [type(event) for event in world.events].count(JobPreempted) == 1


def test_for_whom_a_job_makes_room_is_on_record_even_if_it_is_cancelled_meanwhile() -> None:
    world = world_of("a")
    low = running(world, spec(8, priority=25))
    high = world.submit(spec(8, priority=75))
    world.tick()
    world.tell(inputs.Cancel(low, "ada"))
    assert world.restarted().job(low).yields_to == world.job(low).yields_to == (high,)


def stretched(early: JobSpec | None = None) -> tuple[World, int, int]:
    """An elastic job on three nodes, half of each, gives up that on b for one who is important."""
    world = world_of("a", "b", "c")
    elastic = running(world, spec(12, nodes=3, priority=10, gang=Gang(2, elastic=True)))
    for node in "abc":
        running(world, spec(4, priority=100, affinity=(term_of(f"node in {node}"),)))
    world.now += HOUR
    if early is not None:
        world.submit(early)
    high = world.submit(spec(4, priority=75))
    world.tick()
    assert plans(world) == [(high, [elastic])]
    assert world.stops() == [("b", elastic)]
    world.exit(3)  # b has four other GPUs free now
    return world, elastic, high


def test_what_an_elastic_job_has_given_up_for_one_is_given_to_nobody_else_when_all_of_it_has_to_go() -> None:
    world, elastic, high = stretched()
    gang = world.submit(spec(8, nodes=2, priority=75))
    world.tick()
    assert plans(world) == [(high, [elastic]), (gang, [elastic])]
    kept = {world.job(each).claim[-1] for each in (high, gang)}
    assert {each.node for each in kept} == {"b"}
    assert len({hold.uuid for each in kept for hold in each.gpus}) == 8


@pytest.mark.parametrize("cancelled", [False, True])
def test_another_controller_knows_for_whose_sake_an_elastic_job_leaves_each_node(cancelled: bool) -> None:
    world, elastic, high = stretched(early=spec(8, nodes=2, priority=75, hold=True))
    gang = high - 1
    world.tell(inputs.Release(gang, "ada"))
    world.tick()
    assert plans(world) == [(high, [elastic]), (gang, [elastic])]
    if cancelled:
        world.tell(inputs.Cancel(high, "ada"))
    left = {node.name: dict(node.leaving) for node in world.state.nodes}
    assert left["b"] == {elastic: gang if cancelled else high}
    other = world.restarted()
    assert {node.name: dict(node.leaving) for node in other.state.nodes} == left
    assert check(other.state) == []


def test_what_an_elastic_job_gives_up_for_two_others_is_as_good_as_gone_once() -> None:
    world, elastic, _high = stretched()
    world.submit(spec(8, nodes=2, priority=75))
    world.tick()
    gone = [each for job, given, sign in changing_hands(world.state) for each in given if sign < 0]
    assert sorted(each.node for each in gone) == ["a", "b", "c"]
    assert {job.id for job, _, sign in changing_hands(world.state) if sign < 0} == {elastic}


def test_a_promise_leaves_alone_what_is_kept_while_only_some_of_those_who_held_it_have_left() -> None:
    world = world_of("a", backfill=Backfill.CONSERVATIVE)
    first, second = (running(world, spec(2, priority=25)) for _ in range(2))
    running(world, spec(2, priority=90))
    world.now += HOUR
    high = world.submit(spec(4, priority=75, gpu=GpuWish(numa="require")))
    world.tick()
    assert plans(world) == [(high, [first, second])]
    leave(world, first)
    assert [start.job for start in world.tick()] == [first]  # beside it, there is other room
    assert world.gpus_of(first) == [6, 7]
    leave(world, second)
    assert [start.job for start in world.tick()] == [high]
    assert world.gpus_of(high) == [0, 1, 2, 3]
