"""Jobs with a deadline: who may not pass them, who has to let them go first, and what they are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.deadlines import promised
from controller.core.events import DeadlineDoubted
from controller.core.explain import reason_of
from controller.core.jobs import NEVER
from controller.core.plugin import Backfill, Deadlines
from controller.plugins.orders.fifo import Fifo
from tests.worlds import PIPELINE, World, spec
from wire.spec import JobSpec
from wire.words import JobState, Reason

HOUR = 3_600.0
NONE, GUARD, LIFT = Deadlines


def world_of(deadlines: Deadlines, backfill: Backfill = Backfill.EASY, nodes: int = 1) -> World:
    """Machines of eight CPUs."""
    world = World(replace(PIPELINE, order=Fifo(), backfill=backfill, deadlines=deadlines))
    for number in range(nodes):
        world.join(f"m{number}", cpus=8, gpus=0)
    return world


def cpus(
    world: World, count: int, hours: float | None, due_h: float | None = None, nodes: int = 1
) -> JobSpec:
    """So many on each of so many nodes, for so long, to be over so long from now."""
    limit = None if hours is None else hours * HOUR
    due = None if due_h is None else world.now + due_h * HOUR
    return spec(0, cpu_milli=count * 1000, time_limit_s=limit, deadline_at=due, nodes=nodes)


def started(world: World) -> list[int]:
    return [start.job for start in world.tick()]


def why(world: World, job: int) -> tuple[Reason, str]:
    found = world.why(job)
    assert found.reason is reason_of(world.state, world.job(job))
    return found.reason, found.sentence


# 6 of 8 CPUs run for 2 h. All 8 are wanted for 1 h next, then 4 by a job that has to start within 5 h.
# Behind them comes one of these:
PASSING = [
    ("2 CPUs for 2 h: gone before the first starts", 2, 2, (True, True)),
    ("2 CPUs for 9 h: would delay the first", 2, 9, (False, False)),
]


@pytest.mark.parametrize(
    ("count", "hours", "starts"), [row[1:] for row in PASSING], ids=[row[0] for row in PASSING]
)
def test_what_delays_the_first_does_not_start_in_either_case(
    count: int, hours: float, starts: tuple[bool, bool]
) -> None:
    for deadlines, expected in zip((NONE, GUARD), starts, strict=True):
        world = world_of(deadlines)
        world.submit(cpus(world, 6, 2))
        world.tick()
        world.submit(cpus(world, 8, 1))
        world.submit(cpus(world, 4, 1, due_h=6))
        last = world.submit(cpus(world, count, hours))
        assert started(world) == ([last] if expected else [])


@pytest.mark.parametrize(
    "backfill", [Backfill.EASY, Backfill.EASY_SJBF, Backfill.GREEDY, Backfill.AGGRESSIVE]
)
def test_nobody_passes_in_the_room_that_a_deadline_needs(backfill: Backfill) -> None:
    """8 CPUs: 4 run for 3 h. 6 are wanted next for 1 h, then 8 by a job that has to start within 5 h."""
    for deadlines, expected in ((NONE, True), (GUARD, False), (LIFT, False)):
        world = world_of(deadlines, backfill)
        world.submit(cpus(world, 4, 3))
        world.tick()
        world.submit(cpus(world, 6, 1))
        dated = world.submit(cpus(world, 8, 1, due_h=6))
        long = world.submit(cpus(world, 2, 9))
        short = world.submit(cpus(world, 2, 3))
        assert sorted(started(world)) == ([long] if expected else []) + [short]
        if not expected:
            reason, sentence = why(world, long)
            assert reason is Reason.OTHERS_DEADLINE
            assert sentence == (
                "fits now, but may run for 9h00m in room "
                f"that job {dated} needs within 5h00m to keep its deadline"
            )


def test_whose_turn_it_is_takes_that_room_unless_deadlines_are_lifted() -> None:
    """A whole machine: the first wants it for 10 h, the second for 1 h and has to start within 4 h."""
    for deadlines in Deadlines:
        world = world_of(deadlines)
        first, dated = world.submit(cpus(world, 8, 10)), world.submit(cpus(world, 8, 1, due_h=5))
        assert started(world) == ([dated] if deadlines is LIFT else [first])
        if deadlines is LIFT:
            world.start(dated)
            world.now += HOUR
            world.exit(dated)
            assert started(world) == [first]


def test_nobody_is_lifted_who_need_not_be() -> None:
    """There is time for both, one after the other."""
    world = world_of(LIFT)
    first = world.submit(cpus(world, 8, 3))
    world.submit(cpus(world, 8, 1, due_h=5))
    assert started(world) == [first]


def test_at_its_last_moment_a_job_starts_before_all_others() -> None:
    """The first waits for all CPUs; the second has room, but would delay the first by all of its own 4 h."""
    for deadlines in (GUARD, LIFT):
        world = world_of(deadlines)
        world.submit(cpus(world, 4, 3))
        world.tick()
        world.submit(cpus(world, 8, 1))
        dated = world.submit(cpus(world, 4, 4, due_h=6))
        assert started(world) == []
        world.now += 2 * HOUR - 10
        assert world.engine.next_at <= world.now or deadlines is GUARD
        assert started(world) == ([dated] if deadlines is LIFT else [])


def test_of_several_those_that_have_to_start_first_come_first() -> None:
    world = world_of(LIFT)
    first = world.submit(cpus(world, 8, 10))
    later = world.submit(cpus(world, 8, 2, due_h=9))
    sooner = world.submit(cpus(world, 8, 2, due_h=4))
    order = []
    for _ in range(3):
        [job] = started(world)
        order.append(job)
        world.start(job)
        world.now += world.job(job).limit
        world.exit(job)
    assert order == [sooner, later, first]


def test_who_cannot_keep_its_deadline_any_more_is_told() -> None:
    """And keeps nobody else waiting. When a job ends before its time there is hope again."""
    world = world_of(GUARD)
    running = world.submit(cpus(world, 6, 9))
    world.tick()
    dated = world.submit(cpus(world, 8, 1, due_h=5))
    assert "has to start within 4h00m to keep its deadline" in world.why(dated).sentence
    other = world.submit(cpus(world, 2, 8))
    assert started(world) == [other]
    assert why(world, dated)[0] is Reason.DEADLINE
    assert world.job(dated).wait.doubted
    assert world.why(dated).sentence.endswith("and room for it may come free only in 9h00m")
    assert world.restarted().job(dated).wait.doubted
    world.start(running)
    world.exit(running)
    world.start(other)
    world.exit(other, node="")
    assert [event.doubted for event in world.events if isinstance(event, DeadlineDoubted)] == [True]
    assert started(world) == [dated]


JOBS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 2), st.sampled_from([1, 2, 3, 5, 9]), st.integers(0, 6)),
    min_size=1,
    max_size=10,
)
"""CPUs on each of so many nodes, hours, and how many hours after the one before it comes."""


@given(
    before=JOBS,
    behind=JOBS,
    asked=st.tuples(st.integers(1, 8), st.integers(1, 2), st.integers(1, 4)),
    slack=st.integers(0, 12),
    backfill=st.sampled_from([each for each in Backfill if each is not Backfill.CONSERVATIVE]),
)
@settings(max_examples=60, deadline=None)
def test_a_deadline_that_could_be_kept_is_kept(
    before: list[tuple[int, int, int, int]],
    behind: list[tuple[int, int, int, int]],
    asked: tuple[int, int, int],
    slack: int,
    backfill: Backfill,
) -> None:
    """If there was room for a job at its latest start when it came, it starts by then, whoever else waits.

    All run as long as they may. There is one such job: for several of them there may not be room enough.
    """
    world = world_of(LIFT, backfill, nodes=2)
    arrivals = []
    at = world.now
    for count, nodes, hours, gap in behind:
        at += gap * HOUR
        arrivals.append((at, count, nodes, hours))
    for count, nodes, hours, _ in before:
        world.submit(cpus(world, count, hours, nodes=nodes))
    world.tick()
    count, nodes, hours = asked
    dated = world.submit(cpus(world, count, hours, due_h=hours + slack, nodes=nodes))
    job = world.job(dated)
    possible = promised(world.state, world.engine.placer, job, job.latest_start) is not None
    while job.state is JobState.QUEUED:
        ends = [(end, number) for end, number in world.state.releases if end <= world.now]
        for _, number in ends:
            world.start(number)
            world.exit(number)
        for arrival in [each for each in arrivals if each[0] <= world.now]:
            arrivals.remove(arrival)
            world.submit(cpus(world, arrival[1], arrival[3], nodes=arrival[2]))
        world.tick()
        moments = [end for end, _ in world.state.releases] + [each[0] for each in arrivals]
        world.now = min([*moments, world.engine.next_at])
        assert world.now < NEVER
    assert job.placed_at is not None or not possible
    assert job.placed_at is None or job.placed_at <= job.latest_start
