"""The value of free GPUs: updated row by row, and reduced by each placement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.cluster.gpus.gpu_value import EMPTY_PART, GpuValue
from tests.engine_harness import EngineHarness, default_pipeline, spec
from tests.examples import examples
from wire.job.spec import JobSpec

ASKED = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.25, 0.5, 0.75, 1, 2, 4]),
    cpu_milli=st.sampled_from([500, 4_000, 16_000]),
    memory_mib=st.sampled_from([1_024, 65_536]),
    gpu_models=st.sampled_from([(), (), ("H100",), ("L4",)]),
    nodes=st.just(1),
)


def mixed_world() -> EngineHarness:
    harness = EngineHarness(default_pipeline())
    harness.join("big", gpus=8, cpus=64)
    harness.join("lean", gpus=8, cpus=16)
    harness.join("old", gpus=4, model="L4", cpus=32)
    return harness


def node_values(harness: EngineHarness) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The value of every node as the engine has it."""
    return harness.state.nodes.gpu_value()._value.copy()


@settings(max_examples=examples(60))
@given(st.lists(ASKED, min_size=1, max_size=25))
def test_values_updated_by_row_equal_values_computed_again(jobs: list[JobSpec]) -> None:
    harness = mixed_world()
    running = []
    for number, job in enumerate(jobs):
        placed = harness.submit(job)
        harness.tick()
        harness.state.nodes.gpu_value()
        if harness.nodes_of(placed):
            running.append(placed)
        if number % 3 == 2 and running:
            harness.start(running[0])
            harness.exit(running.pop(0))
        kept, nodes = harness.state.nodes.gpu_value(), harness.state.nodes
        offers = kept._offer(slice(None))
        assert np.array_equal(kept._count, offers[0])
        assert np.array_equal(kept._room, offers[1])
        rows = np.arange(len(nodes))
        free = kept._left(EMPTY_PART, rows)
        assert np.allclose(kept._value, kept._value_of(rows, *free, *offers))


@settings(max_examples=examples(60))
@given(st.lists(ASKED, min_size=1, max_size=12), ASKED)
def test_the_predicted_change_equals_the_change_after_placement(before: list[JobSpec], job: JobSpec) -> None:
    harness = mixed_world()
    for each in [*before, job]:
        harness.submit(each)
    held = [harness.submit(each) for each in (job,)]
    nodes = harness.state.nodes
    worth: GpuValue = nodes.gpu_value()
    part = harness.job(held[0]).ask.part
    ranking = harness.engine.placer.ranking(part)
    for row in np.flatnonzero(ranking.fits).tolist():
        foretold = float(worth.change(part, np.array([row]))[0])
        allocation, _ = harness.engine.placer.allocate(part, nodes.rows[row])
        value = node_values(harness)[row]
        nodes.hold(999, (allocation,))
        assert node_values(harness)[row] - value == pytest.approx(foretold, abs=1e-6)
        nodes.free(999, (allocation.node,))


def test_a_job_without_gpus_leaves_the_cpus_that_gpus_need() -> None:
    """`lean` has two CPUs a GPU, `big` eight; jobs ask four: CPU taken from `lean` is GPU lost."""
    harness = EngineHarness(default_pipeline())
    harness.join("big", gpus=8, cpus=64)
    harness.join("lean", gpus=8, cpus=16)
    for _ in range(7):
        harness.submit(spec(1, cpu_milli=4_000, hold=True))
    job = harness.submit(spec(0, cpu_milli=8_000))
    harness.tick()
    assert harness.nodes_of(job) == ["big"]


def test_a_job_for_any_model_avoids_the_scarce_model() -> None:
    harness = EngineHarness(default_pipeline())
    harness.join("a-scarce", gpus=2, model="H100", cpus=64)
    for name in ("b-plenty", "c-plenty", "d-plenty"):
        harness.join(name, gpus=8, model="L4", cpus=64)
    for _ in range(15):
        harness.submit(spec(1, gpu_models=("H100",), hold=True))
    job = harness.submit(spec(1))
    harness.tick()
    assert harness.nodes_of(job)[0].endswith("plenty")


def test_a_change_log_that_is_too_short_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a memory of three changes the engine decides as with one of thousands."""
    from controller.core.cluster import nodes

    def story() -> list[object]:
        harness = mixed_world()
        for number in range(30):
            harness.submit(spec([0.5, 1, 2][number % 3], cpu_milli=2_000))
            harness.tick()
            if number % 4 == 3:
                first = harness.state.releases[0][1]
                harness.start(first)
                harness.exit(first)
        return list(harness.events)

    expected = story()
    monkeypatch.setattr(nodes, "CHANGE_LOG_LIMIT", 3)
    assert story() == expected


def test_node_whose_running_jobs_exceed_its_size_has_value_zero() -> None:
    harness = mixed_world()
    for _ in range(3):
        harness.submit(spec(1, cpu_milli=4_000, hold=True))
    nodes = harness.state.nodes
    row = nodes.by_name["lean"].row
    nodes.columns.cpu_free[row] = -32_000  # the host rejoined with fewer CPUs
    worth = GpuValue(nodes.columns, nodes.demand)
    assert worth._value[row] == 0
    assert sum(worth._value > 0) == 2
