"""Room that tenants owe each other, by shares and by quotas that were lent, and that it comes to rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import inputs
from controller.core.events import PreemptionPlanned
from controller.core.forecast import forecast, fork
from controller.core.plugin import Backfill, Guards, Strategy
from controller.core.quotas import Rules
from controller.core.shares import Sharing
from controller.plugins.preemption.fair import Fair
from controller.plugins.preemption.reclaim import ReclaimLent
from controller.plugins.quotas.local import Amounts, Borrowed, Local, ProjectTable
from tests.worlds import PIPELINE, World, spec
from wire.words import JobState, Reason

HOUR = 3600.0
UNGUARDED = Guards(min_runtime_s=0.0, cooldown_s=0.0)
ORGANISATIONS = {"lab": ("vision", "speech"), "shop": ("web",)}


def world_of(strategy: Strategy, nodes: int = 1, **more: Any) -> World:
    world = World(replace(PIPELINE, **{"strategies": (strategy,), "guards": UNGUARDED, **more}))
    for number in range(nodes):
        world.join(f"n{number}")
    return world


def submit(world: World, who: str, gpus: float, **more: Any) -> int:
    """`project/user` asks for so many GPUs."""
    project, user = who.split("/")
    return world.submit(spec(gpus, project=project, **more), user=user)


def fill(world: World, held: Held) -> list[int]:
    """(project/user, GPUs, hours it has run by the end of this), all of which start."""
    begin, jobs = world.now, []
    for who, gpus, hours in held:
        world.now = begin + (10 - hours) * HOUR
        jobs.append(submit(world, who, gpus))
        world.tick()
        world.start(jobs[-1])
    world.now = begin + 10 * HOUR
    return jobs


def plans(world: World) -> list[tuple[int, list[int]]]:
    """(for whom, who) of every plan so far."""
    return [
        (event.job, [victim.job for victim in event.victims])
        for event in world.events
        if isinstance(event, PreemptionPlanned)
    ]


def leave(world: World) -> None:
    """Whoever was told to make room does, and what can start starts."""
    for job in [job for job in world.state.live() if job.stopping is not None]:
        world.exit(job.id, None, signal=15, why="preempted")
    for start in world.tick():
        world.start(start.job)


Held = list[tuple[str, float, float]]
"""(project/user, GPUs, hours it has run)."""

# (story, options, weights, held on a node of eight GPUs, who asks for how many, which of them are ended)
FAIR: list[tuple[str, dict[str, Any], dict[str, float], Held, tuple[str, float], list[int] | None]] = [
    ("half of all is due to one of two", {}, {}, [("v/a", 8, 1)], ("s/b", 4), [1]),
    ("but no more than half", {}, {}, [("v/a", 8, 1)], ("s/b", 5), None),
    ("what is held already counts", {}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 2), None),
    ("a little above is not far above", {}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 1), None),
    ("or it is", {"threshold": 1.0}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 1), [1]),
    ("who loses least", {}, {}, [("v/a", 4, 3), ("v/c", 4, 1)], ("s/b", 4), [2]),
    ("a third is due to one of three", {}, {}, [("v/a", 4, 2), ("w/c", 4, 1)], ("s/b", 2), [2]),
    ("only of those who hold too much", {}, {}, [("v/a", 6, 9), ("w/c", 2, 1)], ("s/b", 2), [1]),
    ("weights decide what is fair", {}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 3), None),
    ("and what is far above it", {}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 2), [1]),
    ("or not", {"threshold": 1.4}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 2), None),
    ("between users of one project", {}, {}, [("v/a", 4, 2), ("v/a", 4, 1)], ("v/b", 4), [2]),
    ("not between jobs of one user", {}, {}, [("v/a", 8, 1)], ("v/a", 1), None),
    ("organisations first", {}, {}, [("vision/a", 4, 2), ("speech/a", 4, 1)], ("web/b", 4), [2]),
    ("inside one, projects", {}, {}, [("vision/a", 4, 1), ("web/b", 4, 1)], ("speech/a", 2), [1]),
    ("nobody above the ceiling", {"most": 49}, {}, [("v/a", 8, 1)], ("s/b", 4), None),
    ("nobody in vain", {}, {}, [("v/a", 4, 1), ("x/a", 2, 1), ("y/a", 2, 1)], ("s/b", 8), None),
]


@pytest.mark.parametrize(
    ("options", "weights", "held", "asks", "ended"),
    [row[1:] for row in FAIR],
    ids=[row[0] for row in FAIR],
)
def test_who_makes_room_for_who_has_less_than_their_share(
    options: dict[str, Any],
    weights: dict[str, float],
    held: Held,
    asks: tuple[str, float],
    ended: list[int] | None,
) -> None:
    world = world_of(Fair(**options), sharing=Sharing(weights=weights, organisations=ORGANISATIONS))
    fill(world, held)
    asker = submit(world, *asks)
    world.tick()
    assert plans(world) == ([] if ended is None else [(asker, ended)])


def test_who_is_about_to_leave_is_counted_as_gone() -> None:
    """Of sixteen GPUs eight are fair, and ten are not far above: they ask in turn until there are ten."""
    world = world_of(Fair(), nodes=2)
    fill(world, [("v/a", 2, 1)] * 8)
    for _ in range(4):
        submit(world, "s/b", 2)
        world.tick()  # nobody has left yet
    assert len(plans(world)) == 3
    leave(world)
    assert world.state.shares.accounts["v",].usage.rate == 10.0
    assert world.state.shares.accounts["s",].usage.rate == 6.0
    for _ in range(5):
        leave(world)
    assert len(plans(world)) == 3


def test_who_was_ended_does_not_take_it_back() -> None:
    """The story of two who want all: the victim is first in the queue again, and waits."""
    world = world_of(Fair(threshold=1.0))
    first = fill(world, [("v/a", 4, 2), ("v/a", 4, 1)])
    other = submit(world, "s/b", 4)
    world.tick()
    leave(world)
    assert plans(world) == [(other, [first[1]])]
    assert (world.job(other).state, world.job(first[1]).state) == (JobState.RUNNING, JobState.QUEUED)
    for _ in range(10):
        world.now += HOUR
        leave(world)
    assert len(plans(world)) == 1
    assert world.job(first[1]).reason is Reason.PREEMPTED
    world.tell(
        inputs.SetShare("v", 9.0, "root")
    )  # seven of eight are fair now, and the four of speech are not
    world.tick()
    assert plans(world)[1:] == []  # with its four v would hold eight
    more = submit(world, "v/a", 2, priority=60)
    world.tick()
    assert plans(world)[1:] == [(more, [other])]


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_guards_hold_for_it_as_for_any_other(backfill: Backfill) -> None:
    world = world_of(Fair(), guards=Guards(min_runtime_s=HOUR, grace_s=7.0), backfill=backfill)
    job = submit(world, "v/a", 8)
    world.tick()
    world.start(job)
    asker = submit(world, "s/b", 4)
    world.tick()
    assert plans(world) == []
    assert forecast(fork(world.engine), world.now).starts[asker].at == world.now + HOUR + 10.0
    world.now = world.engine.next_at
    world.tick()
    assert plans(world) == [(asker, [job])]
    assert world.job(job).stop_by == world.now + 10.0


TENANTS = st.sampled_from(["vision/a", "vision/b", "speech/a", "web/c", "other/d"])


@settings(max_examples=80)
@given(
    threshold=st.sampled_from([1.0, 1.25, 2.0]),
    organised=st.booleans(),
    jobs=st.lists(st.tuples(TENANTS, st.sampled_from([0.5, 1, 2, 3, 4, 8])), min_size=4, max_size=24),
    late=st.lists(st.tuples(TENANTS, st.sampled_from([1, 2, 4])), max_size=8),
)
def test_it_comes_to_rest(
    threshold: float, organised: bool, jobs: list[tuple[str, float]], late: list[tuple[str, float]]
) -> None:
    """Nothing ends by itself: each plan starts a job that nobody on its level takes from again."""
    sharing = Sharing(organisations=ORGANISATIONS if organised else {})
    guards = replace(UNGUARDED, max_per_job=1_000, rate=1_000)
    world = world_of(Fair(threshold), nodes=2, sharing=sharing, guards=guards)
    for who, gpus in (*jobs, *late):
        submit(world, who, gpus)
        world.tick()
    quiet = before = 0
    for _ in range(4 * len(world.state.jobs)):
        world.now += 60.0
        leave(world)
        quiet, before = (quiet + 1 if len(plans(world)) == before else 0), len(plans(world))
    assert quiet > 2
    taken = [victim for _, victims in plans(world) for victim in victims]
    given_room = [job for job, _ in plans(world)]
    if not organised and len({*[who for who, _ in (*jobs, *late)]} & {"vision/a", "vision/b"}) < 2:
        assert not {*taken} & {*given_room}
    assert len(given_room) <= len(world.state.jobs) * 3


def lending(reclaim: bool = True, **projects: ProjectTable) -> World:
    """Eight GPUs: vision has two and may borrow six, speech has six, and what is said beside."""
    tables = {
        "vision": ProjectTable(gpus=2, borrow=Borrowed(gpus=6)),
        "speech": ProjectTable(gpus=6),
        **projects,
    }
    strategies = (ReclaimLent(),) if reclaim else ()
    rules = Rules({}, Local(projects=tables))
    guards = replace(UNGUARDED, max_per_job=1_000, rate=1_000)
    made = World(replace(PIPELINE, rules=rules, strategies=strategies, guards=guards))
    made.join("a")
    return made


# (story, held, who asks for how many, who is ended)
LENT: list[tuple[str, Held, tuple[str, float], list[int] | None]] = [
    ("what was borrowed comes back", [("vision/a", 4, 2), ("vision/a", 4, 1)], ("speech/b", 4), [2]),
    ("what loses least, not what came last", [("vision/a", 4, 1), ("vision/a", 4, 2)], ("speech/b", 4), [1]),
    ("up to all that is lent", [("vision/a", 2, 2)] * 4, ("speech/b", 6), [1, 2, 3]),
    ("not to who would borrow themselves", [("vision/a", 8, 1)], ("speech/b", 7), None),
    ("nor to who lends nothing", [("vision/a", 8, 1)], ("other/b", 1), None),
    ("nor from who has borrowed nothing", [("vision/a", 2, 1), ("other/b", 6, 1)], ("speech/b", 4), None),
    ("nobody in vain", [("vision/a", 4, 1), ("other/b", 4, 1)], ("speech/b", 6), None),
]


@pytest.mark.parametrize(("held", "asks", "ended"), [row[1:] for row in LENT], ids=[row[0] for row in LENT])
def test_what_is_lent_is_taken_back(held: Held, asks: tuple[str, float], ended: list[int] | None) -> None:
    for reclaim in (True, False):
        more = {"speech": ProjectTable(gpus=6, borrow=Borrowed(gpus=2))} if asks[1] > 6 else {}
        world = lending(reclaim, **more)
        fill(world, held)
        asker = submit(world, *asks)
        world.tick()
        assert plans(world) == ([(asker, ended)] if ended and reclaim else [])


def test_a_borrower_is_left_what_is_its_own_and_does_not_come_back_while_the_lender_waits() -> None:
    world = lending()
    jobs = fill(world, [("vision/a", 1, hours) for hours in (8, 7, 6, 5, 4, 3, 2, 1)])
    mine = [submit(world, "speech/b", 2) for _ in range(4)]
    for _ in range(8):
        leave(world)
    assert sorted(job for _, victims in plans(world) for job in victims) == jobs[2:]
    assert [world.job(job).state for job in mine] == [JobState.RUNNING] * 3 + [JobState.QUEUED]
    assert "'speech' on GPUs: 6 of 6" in world.why(mine[3]).sentence  # it borrows nothing
    for _ in range(5):
        world.now += HOUR
        leave(world)
    assert len(plans(world)) == 3
    world.exit(mine[0])  # its other job is next: it is within its own again
    leave(world)
    assert world.job(mine[3]).state is JobState.RUNNING
    world.exit(mine[1])
    leave(world)
    assert len([job for job in jobs if world.job(job).state is JobState.RUNNING]) == 4  # two are lent again


def test_a_borrower_that_is_only_a_soft_limit_beyond_keeps_its_room() -> None:
    world = lending(other=ProjectTable(soft=Amounts(gpus=1)))
    fill(world, [("other/c", 8, 1)])
    submit(world, "speech/b", 4)
    world.tick()
    assert plans(world) == []


SMALL = st.tuples(st.sampled_from(["vision/a", "speech/b", "third/c"]), st.sampled_from([1, 2, 3, 4]))


@settings(max_examples=80)
@given(jobs=st.lists(SMALL, min_size=4, max_size=20))
def test_lending_comes_to_rest(jobs: list[tuple[str, float]]) -> None:
    """Nothing ends by itself, and no guard stops anything."""
    world = lending(third=ProjectTable(gpus=2, borrow=Borrowed(gpus=2)))
    for who, gpus in jobs:
        project, user = who.split("/")
        world.tell(inputs.Submit(spec(gpus, project=project), user))
        world.tick()
    for _ in range(2 * len(jobs)):
        world.now += 60.0
        leave(world)
    before = plans(world)
    for _ in range(3):
        world.now += HOUR
        leave(world)
    assert plans(world) == before


@pytest.mark.parametrize("threshold", [0.5, -1.0, float("nan")])
def test_a_threshold_below_what_is_fair_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Fair(threshold)
