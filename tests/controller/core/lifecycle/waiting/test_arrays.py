"""Arrays with a limit of elements that run at once."""

from __future__ import annotations

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.inputs import job_inputs
from tests.engine_harness import EngineHarness, spec
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until
from wire.names import JobState, Reason


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    return harness


def started(harness: EngineHarness) -> list[str]:
    return [harness.job(start.job).label for start in harness.tick()]


def test_at_most_the_limit_of_elements_runs_at_once(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-4%2"))
    assert started(harness) == ["1_0", "1_1"]
    assert started(harness) == []
    assert (harness.why(array + 2).reason, harness.why(array + 2).sentence) == (
        Reason.ARRAY,
        "waits for a slot: 2 of array 1 may run at once",
    )
    harness.start(array + 1)
    harness.exit(array + 1, code=3)
    assert started(harness) == ["1_2"]
    harness.tell(job_inputs.Cancel(array + 3, "ada"))
    harness.start(array)
    harness.exit(array)
    assert started(harness) == ["1_4"]


def test_a_held_element_gives_its_slot_to_the_next(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-3%1"))
    harness.tell(job_inputs.Hold(array, "ada"))
    assert started(harness) == ["1_1"]
    harness.tell(job_inputs.Release(array, "ada"))
    assert started(harness) == []
    harness.start(array + 1)
    harness.exit(array + 1)
    assert started(harness) == ["1_0"]


def test_an_array_that_is_held_takes_slots_as_it_is_released(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-2%1", hold=True))
    for element in (2, 0, 1):
        harness.tell(job_inputs.Release(array + element, "ada"))
    assert started(harness) == ["1_2"]
    harness.start(array + 2)
    harness.exit(array + 2)
    assert started(harness) == ["1_0"]


def test_a_requeued_element_keeps_its_slot(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-1%1", restart=Restart(RestartWhen.ON_FAILURE, 1, 30)))
    harness.tick()
    harness.start(array)
    harness.exit(array, code=1)
    assert started(harness) == []
    harness.now += 30
    assert started(harness) == ["1_0"]


def test_dependencies_open_before_slots_are_given(harness: EngineHarness) -> None:
    first = harness.submit(spec(1))
    array = harness.submit(spec(1, array="0-2%2", after=(Dependency(Until.OK, str(first)),)))
    assert started(harness) == ["1"]
    harness.start(first)
    harness.exit(first)
    assert started(harness) == [f"{array}_0", f"{array}_1"]


def test_a_cancelled_array_frees_its_throttle(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, hold=True))
    array = harness.submit(spec(1, array="0-9%2", after=(Dependency(Until.OK, str(first)),)))
    harness.tell(job_inputs.Cancel(first, "ada"))
    assert {harness.job(array + element).state for element in range(10)} == {JobState.CANCELLED}
    assert harness.engine.due_jobs.throttles.by_group == {}


def test_a_forecast_keeps_to_the_array_limit(harness: EngineHarness) -> None:
    array = harness.submit(spec(1, array="0-2%1", time_limit_s=100))
    ahead = forecast(fork(harness.engine), harness.now)
    starts = [ahead.starts[array + element].at - harness.now for element in range(3)]
    assert starts == [0, 100, 200]
