"""A job comes as early as the most important of those that wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core import inputs
from controller.core.events import PriorityInherited
from controller.core.gates import WaitRules
from controller.core.plugin import Order
from controller.plugins.orders.aging import Aging
from controller.plugins.orders.multifactor import Multifactor
from controller.plugins.orders.priority import Priority
from tests.worlds import PIPELINE, World, spec
from wire.conditions import Dependency, Until


def after(*jobs: int | str, until: Until = Until.OK) -> tuple[Dependency, ...]:
    return tuple(Dependency(until, str(job)) for job in jobs)


def world_of(order: Order | None = None) -> World:
    """Nothing can start: there is no node yet."""
    return World(replace(PIPELINE, order=order or Priority()))


def priorities(world: World, *jobs: int) -> list[int]:
    return [world.job(job).priority for job in jobs]


def order_of(world: World) -> list[int]:
    """All that wait for their turn, the first first."""
    whys = {job: world.why(job).position for lane in world.state.queue for _, job in lane}
    return sorted(whys, key=lambda job: whys[job] or 0)


@pytest.mark.parametrize("order", [Priority(), Aging(per_hour=0), Multifactor(age=0, fair_share=0, size=0)])
def test_what_an_important_job_waits_for_comes_first(order: Order) -> None:
    world = world_of(order)
    plain, low = world.submit(spec(8)), world.submit(spec(8, priority=25))
    assert order_of(world) == [plain, low]
    heir = world.submit(spec(8, priority=90, after=after(low)))
    assert order_of(world) == [low, plain]
    why = world.why(low)
    assert f"its priority is inherited 90 from job {heir}" in why.sentence
    assert [each.note for each in why.receipt if each.name == "priority"] in (
        [],
        [f"inherited 90 from job {heir}"],
    )
    world.join("m")
    assert [start.job for start in world.tick()] == [low]


def test_it_goes_down_a_chain_and_back_up() -> None:
    world = world_of()
    first = world.submit(spec(1, priority=10))
    second = world.submit(spec(1, priority=30, after=after(first)))
    third = world.submit(spec(1, priority=20, after=after(second)))
    assert priorities(world, first, second, third) == [30, 30, 20]
    world.tell(inputs.Edit(third, "ada", {"priority": 80}))
    assert priorities(world, first, second, third) == [80, 80, 80]
    assert world.restarted().job(first).priority == 80
    world.tell(inputs.Edit(third, "ada", {"priority": 40}))
    assert priorities(world, first, second, third) == [40, 40, 40]
    world.tell(inputs.Cancel(third, "ada"))
    assert priorities(world, first, second) == [30, 30]
    assert world.why(first).sentence.endswith(f"inherited 30 from job {second}")
    world.tell(inputs.Edit(second, "ada", {"after": None}))
    assert priorities(world, first, second) == [10, 30]


def test_the_most_important_counts_and_the_next_when_it_goes() -> None:
    world = world_of()
    low = world.submit(spec(1, priority=10))
    heirs = [world.submit(spec(1, priority=each, after=after(low))) for each in (60, 90, 90, 70)]
    for heir, left in zip([heirs[1], heirs[2], heirs[0], heirs[3]], (90, 70, 70, 10), strict=True):
        world.tell(inputs.Cancel(heir, "ada"))
        assert priorities(world, low) == [left]
    told = [event.priority for event in world.events if isinstance(event, PriorityInherited)]
    assert told == [60, 90, 70, 0], "who has the same changes nothing"


def test_every_element_of_an_array_inherits_and_those_that_lend_come_in_arrays() -> None:
    world = world_of()
    array = world.submit(spec(1, array="0-2", priority=10))
    single = world.submit(spec(1, priority=10))
    world.submit(spec(1, array="0-1", priority=60, after=(*after(array), *after(single))))
    world.submit(spec(1, priority=70, after=after(f"{array}_1")))
    assert priorities(world, array, array + 1, array + 2, single) == [60, 70, 60, 60]


@pytest.mark.parametrize("until", [each for each in Until if each is not Until.DATA])
def test_it_lasts_until_what_is_waited_for_has_happened(until: Until) -> None:
    world = world_of()
    other = world.submit(spec(1, priority=10))
    job = world.submit(spec(1, priority=10))
    world.submit(spec(1, priority=90, after=after(other, job, until=until), after_count=1))
    assert priorities(world, other, job) == [90, 90]
    world.tell(inputs.Cancel(job, "ada"))
    happened = until in (Until.NOT_OK, Until.ENDED)
    assert priorities(world, other) == [10 if happened else 90], "one of the two was enough"


def test_who_is_held_lends_nothing() -> None:
    world = world_of()
    low = world.submit(spec(1, priority=10))
    heir = world.submit(spec(1, priority=90, after=after(low), hold=True))
    assert priorities(world, low) == [10]
    world.tell(inputs.Release(heir, "ada"))
    assert priorities(world, low) == [90]
    world.tell(inputs.Hold(heir, "ada"))
    assert priorities(world, low) == [10]


def test_a_job_promoted_for_waiting_rises_from_its_own_priority() -> None:
    rules = WaitRules(promote_after_s=60.0, promote_by=30, promote_most=75)
    world = World(replace(PIPELINE, waiting=rules))
    low = world.submit(spec(1, priority=10))
    heir = world.submit(spec(1, priority=50, after=after(low)))
    world.now = 1_060.0
    world.tick()
    assert (world.job(low).own_priority, world.job(low).priority) == (40, 50)
    world.now = 1_120.0
    world.tick()
    assert priorities(world, low, heir) == [70, 50]
    assert world.job(low).wait.inherited == 0, "its own is higher"


def test_whom_a_job_may_have_ended_goes_by_what_it_asked_for() -> None:
    """Else a user would have others' jobs ended by having a CRITICAL one wait for theirs."""
    from controller.plugins.preemption.priority import Priority as ByPriority

    world = world_of()
    low = world.submit(spec(1, priority=10))
    before = ByPriority().reach(world.job(low)), ByPriority().standing(world.job(low))
    world.submit(spec(1, priority=100, after=after(low)))
    assert (ByPriority().reach(world.job(low)), ByPriority().standing(world.job(low))) == before
