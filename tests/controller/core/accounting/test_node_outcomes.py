"""The report on nodes: failures compared with the same jobs on other nodes, and slow nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator

from controller.core.accounting.node_outcomes import nodes_report
from controller.core.model.inputs import job_inputs
from tests.engine_harness import EngineHarness, default_pipeline, spec
from wire.api.service.reports import NodeOutcomes

NODES = ("n1", "n2", "n3", "n4")


def cluster() -> EngineHarness:
    harness = EngineHarness(default_pipeline())
    for name in NODES:
        harness.join(name)
    return harness


def rounds(harness: EngineHarness, failing: dict[str, float], slow: str = "") -> Iterator[NodeOutcomes]:
    """Run jobs of three names on all nodes. `failing` has the part of the jobs that fail, by node."""
    rng = random.Random(5)
    for number in range(30):
        started = []
        for _ in NODES:
            job = harness.submit(spec(8, name=f"{('train', 'eval', 'prep')[number % 3]}-{number}"))
            harness.tick()
            harness.start(job)
            started.append(job)
        harness.now += 10
        for job in sorted(started, key=lambda job: harness.nodes_of(job)[0] == slow):
            [node] = harness.nodes_of(job)
            harness.now += 10 if node == slow else 0
            harness.exit(job, 1 if rng.random() < failing.get(node, 0.03) else 0)
    yield from nodes_report(harness.state, 0.0, harness.now).rows


def test_a_node_on_which_many_different_jobs_fail_gets_a_warning() -> None:
    first, *others = rounds(cluster(), {"n3": 0.4})
    assert (first.node, first.jobs) == ("n3", 30)
    assert first.failed > 3 * first.expected
    assert f"{first.failed} of 30 jobs failed" in first.warning
    assert sum(each.jobs for each in first.failures) == first.failed
    assert [each.warning for each in others] == ["", "", ""]


def test_failures_of_one_name_and_failures_on_all_nodes_give_no_warning() -> None:
    assert {each.warning for each in rounds(cluster(), dict.fromkeys(NODES, 0.4))} == {""}
    harness = cluster()
    for code in (*[0] * 10, *[1] * 8):
        job = harness.submit(spec(8, name="broken" if code else "fine"))
        harness.tick()
        harness.start(job)
        harness.now += 10
        harness.exit(job, code)
    assert {each.warning for each in nodes_report(harness.state, 0.0, harness.now).rows} == {""}


def test_a_node_whose_jobs_take_long_gets_a_warning() -> None:
    first, *others = rounds(cluster(), {}, slow="n2")
    assert first.node == "n2"
    assert first.slower is not None
    assert first.slower > 1.3
    assert "times as long as usual" in first.warning
    assert {each.warning for each in others} == {""}


def test_cancelled_jobs_do_not_count_and_running_jobs_count_as_gpu_time() -> None:
    harness = cluster()
    jobs = [harness.submit(spec(8)) for _ in NODES]
    harness.tick()
    for job in jobs:
        harness.start(job)
    harness.now += 3_600
    harness.tell(job_inputs.Cancel(jobs[0], "root"))
    harness.exit(jobs[0], None, signal=15, why="cancelled")
    rows = nodes_report(harness.state, harness.now - 7_200, harness.now).rows
    assert {each.jobs for each in rows} == {0}
    assert {round(each.gpu_hours) for each in rows} == {8}
    assert {round(each.held_percent or 0.0) for each in rows} == {50}
