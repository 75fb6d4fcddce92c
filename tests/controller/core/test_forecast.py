"""What is foretold is what happens, when jobs take as long as they may."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import inputs
from controller.core.forecast import forecast, fork
from tests.worlds import World, default_pipeline, spec
from wire.spec import JobSpec
from wire.words import JobState

HOUR = 3600.0
JOBS = st.lists(
    st.builds(
        spec,
        gpus=st.sampled_from([0.5, 1, 2, 4, 8, 16]),
        time_limit_s=st.sampled_from([HOUR, 2 * HOUR, 5 * HOUR]),
        priority=st.sampled_from([25, 50, 75]),
    ),
    min_size=1,
    max_size=25,
)


def two_nodes() -> World:
    world = World(default_pipeline())
    world.join("a")
    world.join("b")
    return world


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_the_forecast_comes_true(jobs: list[JobSpec]) -> None:
    world = two_nodes()
    ids = [world.submit(job) for job in jobs]
    foretold = forecast(fork(world.engine), world.now)
    assert foretold.whole
    started: dict[int, float] = {}
    while len(started) < len(ids):
        for start in world.tick():
            started.setdefault(start.job, world.now)
        ends = world.state.releases
        world.now = ends[0][0]
        while ends and ends[0][0] <= world.now:
            job = ends[0][1]
            world.start(job)
            world.exit(job)
    assert {job: start.at for job, start in foretold.starts.items()} == started


def test_asking_changes_nothing() -> None:
    world = two_nodes()
    for gpus in (8, 8, 4):
        world.submit(spec(gpus, time_limit_s=HOUR))
    world.tick()
    before = len(world.events), world.state.next_job
    forecast(fork(world.engine), world.now, [inputs.Cancel(1, "ada"), inputs.Submit(spec(1), "bo")])
    assert (len(world.events), world.state.next_job) == before
    assert world.job(1).state is JobState.SCHEDULED
    assert [start.job for start in world.tick()] == []


def test_what_if_somebody_else_went_first() -> None:
    world = two_nodes()
    for gpus in (8, 8):
        world.submit(spec(gpus, time_limit_s=HOUR))
    world.tick()
    waiting = world.submit(spec(16, time_limit_s=HOUR))
    as_it_is = forecast(fork(world.engine), world.now)
    urgent = inputs.Submit(spec(8, priority=100, time_limit_s=2 * HOUR), "bo")
    changed = forecast(fork(world.engine), world.now, [urgent])
    assert as_it_is.starts[waiting].at == world.now + HOUR
    assert changed.starts[waiting].at == world.now + 3 * HOUR


def test_what_if_a_running_job_were_cancelled() -> None:
    world = two_nodes()
    for gpus in (8, 8):
        world.submit(spec(gpus, time_limit_s=HOUR))
    world.tick()
    world.start(1)
    waiting = world.submit(spec(8, time_limit_s=HOUR))
    changed = forecast(fork(world.engine), world.now, [inputs.Cancel(1, "ada")])
    assert changed.starts[waiting].at == world.now


def test_a_job_without_limit_ends_what_can_be_foretold() -> None:
    world = two_nodes()
    for gpus in (8, 8):
        world.submit(spec(gpus))
    world.tick()
    waiting = world.submit(spec(1))
    foretold = forecast(fork(world.engine), world.now)
    assert waiting not in foretold.starts
    assert not foretold.whole


def test_an_away_node_stays_away_in_the_copy() -> None:
    world = two_nodes()
    world.tell(inputs.LinkWentDown("b", "cut"))
    waiting = world.submit(spec(16))
    assert waiting not in forecast(fork(world.engine), world.now).starts
