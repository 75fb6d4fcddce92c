"""The worth of free GPUs: kept in step row by row, and what a placement takes is missing afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.worth import Worth
from tests.worlds import World, default_pipeline, spec
from wire.spec import JobSpec

ASKED = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.25, 0.5, 0.75, 1, 2, 4]),
    cpu_milli=st.sampled_from([500, 4_000, 16_000]),
    memory_mib=st.sampled_from([1_024, 65_536]),
    gpu_models=st.sampled_from([(), (), ("H100",), ("L4",)]),
    nodes=st.just(1),
)


def mixed_world() -> World:
    world = World(default_pipeline())
    world.join("big", gpus=8, cpus=64)
    world.join("lean", gpus=8, cpus=16)
    world.join("old", gpus=4, model="L4", cpus=32)
    return world


def appraised(world: World) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The worth of every node by the appraisal that the engine keeps."""
    return world.state.nodes.worth()._value.copy()


@settings(max_examples=40, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=25))
def test_what_is_kept_row_by_row_is_what_a_fresh_look_finds(jobs: list[JobSpec]) -> None:
    world = mixed_world()
    running = []
    for number, job in enumerate(jobs):
        placed = world.submit(job)
        world.tick()
        world.state.nodes.worth()
        if world.nodes_of(placed):
            running.append(placed)
        if number % 3 == 2 and running:
            world.start(running[0])
            world.exit(running.pop(0))
        kept, nodes = world.state.nodes.worth(), world.state.nodes
        offers = kept._offer(slice(None))
        assert np.array_equal(kept._count, offers[0])
        assert np.array_equal(kept._room, offers[1])
        assert np.allclose(kept._value, kept._appraise(np.arange(len(nodes))))


@settings(max_examples=40, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=12), ASKED)
def test_the_loss_foretold_is_the_loss_suffered(before: list[JobSpec], job: JobSpec) -> None:
    world = mixed_world()
    for each in [*before, job]:
        world.submit(each)
    held = [world.submit(each) for each in (job,)]
    nodes = world.state.nodes
    worth: Worth = nodes.worth()
    part = world.job(held[0]).ask.part
    ranking = world.engine.placer.ranking(part)
    for row in np.flatnonzero(ranking.fits).tolist():
        foretold = float(worth.kept(part, np.array([row]))[0])
        allocation, _ = world.engine.placer.allocate(part, nodes.rows[row])
        value = appraised(world)[row]
        nodes.hold(999, (allocation,))
        assert appraised(world)[row] - value == pytest.approx(foretold, abs=1e-6)
        nodes.free(999, (allocation.node,))


def test_a_job_without_gpus_goes_where_it_starves_none() -> None:
    """`lean` has two CPUs a GPU, `big` eight; jobs ask four: CPU taken from `lean` is GPU lost."""
    world = World(default_pipeline())
    world.join("big", gpus=8, cpus=64)
    world.join("lean", gpus=8, cpus=16)
    for _ in range(7):
        world.submit(spec(1, cpu_milli=4_000, hold=True))
    job = world.submit(spec(0, cpu_milli=8_000))
    world.tick()
    assert world.nodes_of(job) == ["big"]


def test_who_does_not_mind_the_model_leaves_the_scarce_one() -> None:
    world = World(default_pipeline())
    world.join("a-scarce", gpus=2, model="H100", cpus=64)
    for name in ("b-plenty", "c-plenty", "d-plenty"):
        world.join(name, gpus=8, model="L4", cpus=64)
    for _ in range(15):
        world.submit(spec(1, gpu_models=("H100",), hold=True))
    job = world.submit(spec(1))
    world.tick()
    assert world.nodes_of(job)[0].endswith("plenty")


def test_what_changed_too_long_ago_is_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a memory of three changes the engine decides as with one of thousands."""
    from controller.core import nodes

    def story() -> list[object]:
        world = mixed_world()
        for number in range(30):
            world.submit(spec([0.5, 1, 2][number % 3], cpu_milli=2_000))
            world.tick()
            if number % 4 == 3:
                first = world.state.releases[0][1]
                world.start(first)
                world.exit(first)
        return list(world.events)

    expected = story()
    monkeypatch.setattr(nodes, "LOG_LIMIT", 3)
    assert story() == expected


def test_a_node_with_less_than_what_runs_there_is_worth_nothing() -> None:
    world = mixed_world()
    for _ in range(3):
        world.submit(spec(1, cpu_milli=4_000, hold=True))
    nodes = world.state.nodes
    row = nodes.by_name["lean"].row
    nodes.columns.cpu_free[row] = -32_000  # it came back with fewer CPUs
    worth = Worth(nodes.columns, nodes.demand)
    assert worth._value[row] == 0
    assert sum(worth._value > 0) == 2
