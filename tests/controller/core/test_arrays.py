"""Arrays of which only so many elements may run at once."""

from __future__ import annotations

import pytest

from controller.core import inputs
from controller.core.forecast import forecast, fork
from tests.worlds import World, spec
from wire.conditions import Dependency, Restart, RestartWhen, Until
from wire.words import JobState, Reason


@pytest.fixture
def world() -> World:
    world = World()
    world.join("a")
    return world


def started(world: World) -> list[str]:
    return [world.job(start.job).label for start in world.tick()]


def test_no_more_than_so_many_run_at_once(world: World) -> None:
    array = world.submit(spec(1, array="0-4%2"))
    assert started(world) == ["1_0", "1_1"]
    assert started(world) == []
    assert (world.why(array + 2).reason, world.why(array + 2).sentence) == (
        Reason.ARRAY,
        "waits for a slot: 2 of array 1 may run at once",
    )
    world.start(array + 1)
    world.exit(array + 1, code=3)
    assert started(world) == ["1_2"]
    world.tell(inputs.Cancel(array + 3, "ada"))
    world.start(array)
    world.exit(array)
    assert started(world) == ["1_4"]


def test_who_is_held_gives_the_slot_to_the_next(world: World) -> None:
    array = world.submit(spec(1, array="0-3%1"))
    world.tell(inputs.Hold(array, "ada"))
    assert started(world) == ["1_1"]
    world.tell(inputs.Release(array, "ada"))
    assert started(world) == []
    world.start(array + 1)
    world.exit(array + 1)
    assert started(world) == ["1_0"]


def test_an_array_that_is_held_takes_slots_as_it_is_released(world: World) -> None:
    array = world.submit(spec(1, array="0-2%1", hold=True))
    for element in (2, 0, 1):
        world.tell(inputs.Release(array + element, "ada"))
    assert started(world) == ["1_2"]
    world.start(array + 2)
    world.exit(array + 2)
    assert started(world) == ["1_0"]


def test_who_starts_again_keeps_the_slot(world: World) -> None:
    array = world.submit(spec(1, array="0-1%1", restart=Restart(RestartWhen.ON_FAILURE, 1, 30)))
    world.tick()
    world.start(array)
    world.exit(array, code=1)
    assert started(world) == []
    world.now += 30
    assert started(world) == ["1_0"]


def test_slots_come_after_dependencies_together(world: World) -> None:
    first = world.submit(spec(1))
    array = world.submit(spec(1, array="0-2%2", after=(Dependency(Until.OK, str(first)),)))
    assert started(world) == ["1"]
    world.start(first)
    world.exit(first)
    assert started(world) == [f"{array}_0", f"{array}_1"]


def test_hopeless_arrays_are_gone_with_all_their_slots(world: World) -> None:
    first = world.submit(spec(1, hold=True))
    array = world.submit(spec(1, array="0-9%2", after=(Dependency(Until.OK, str(first)),)))
    world.tell(inputs.Cancel(first, "ada"))
    assert {world.job(array + element).state for element in range(10)} == {JobState.CANCELLED}
    assert world.engine.keeper.slots == {}


def test_a_forecast_goes_slot_by_slot(world: World) -> None:
    array = world.submit(spec(1, array="0-2%1", time_limit_s=100))
    ahead = forecast(fork(world.engine), world.now)
    starts = [ahead.starts[array + element].at - world.now for element in range(3)]
    assert starts == [0, 100, 200]
