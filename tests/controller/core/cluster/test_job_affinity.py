"""Jobs near others and apart from them: stories of racks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, default_pipeline, spec
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState, Reason

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3"}
"""Five nodes with two GPUs each."""


def job(
    labels: str = "", near: str = "", apart: str = "", over: str = "", gpus: float = 1, **more: Any
) -> JobSpec:
    terms = [parse_job_term(text, 1) for text in (near,) if text]
    terms += [parse_job_term(text, None) for text in (apart,) if text]
    terms += [parse_job_term(text, 0) for text in (over,) if text]
    named = dict([labels.split("=")]) if labels else {}
    return spec(gpus, labels=named, company=tuple(terms), **more)


def at(node: str, labels: str) -> JobSpec:
    return job(labels, selector={"node": node})


# (story, jobs in submit order, the nodes they get; - waits)
TABLE: list[tuple[str, list[JobSpec], str]] = [
    ("near: on the same node", [at("d", "app=ps"), job(near="app=ps on node")], "dd"),
    (
        "near: in the same rack when the node is full",
        [job("app=ps", gpus=2, selector={"node": "d"}), job(near="app=ps on rack")],
        "dc",
    ),
    ("near a job that is not there: it waits", [job(near="app=ps on rack")], "-"),
    (
        "near its own kind: somebody is the first",
        [job("app=w", near="app=w on rack", gpus=2) for _ in range(3)],
        "ab-",
    ),
    ("near, if possible: elsewhere if not", [job(near="app=ps on rack:prefer")], "a"),
    ("near, if possible: and there if it is", [at("e", "app=ps"), job(near="app=ps on rack:prefer")], "ee"),
    ("apart: on another node", [at("a", "app=db"), job(apart="app=db on node")], "ab"),
    ("apart: in another rack", [at("a", "app=db"), job(apart="app=db on rack")], "ac"),
    (
        "apart from its own kind: one in each rack, the fourth waits",
        [job("app=db", apart="app=db on rack") for _ in range(4)],
        "ace-",
    ),
    (
        "a job without anti-affinity keeps away from a job that excludes it",
        [job(apart="app=noisy on rack"), job("app=noisy")],
        "ac",
    ),
    ("another label is not meant", [at("a", "app=db"), job(apart="app=web on rack")], "aa"),
    (
        "over exactly two racks, whatever number comes",
        [job("app=x", over="app=x on rack=2", gpus=2) for _ in range(5)],
        "acbd-",
    ),
]


def harness_of(pipeline: Pipeline) -> EngineHarness:
    harness = EngineHarness(pipeline)
    for name, rack in RACKS.items():
        harness.join(name, gpus=2, labels={"rack": rack})
    return harness


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(("jobs", "nodes"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_nodes_chosen_under_job_affinity(jobs: list[JobSpec], nodes: str, pipeline: Pipeline) -> None:
    harness = harness_of(pipeline)
    ids = [harness.submit(each) for each in jobs]
    for _ in ids:
        harness.tick()
    assert "".join("".join(harness.nodes_of(each)) or "-" for each in ids) == nodes


def test_a_job_with_affinity_starts_when_the_other_job_runs_and_not_after_it_ended() -> None:
    harness = harness_of(PIPELINE)
    follower = harness.submit(job(near="app=ps on rack"))
    assert harness.tick() == []
    server = harness.submit(at("d", "app=ps"))
    harness.tick()
    harness.start(server)
    harness.tick()
    assert harness.nodes_of(follower) == ["c"] or harness.nodes_of(follower) == ["d"]
    harness.start(follower)
    harness.exit(server)
    late = harness.submit(job(near="app=ps on rack"))
    harness.tick()
    assert harness.job(late).state is JobState.QUEUED
    assert harness.engine.explain(harness.job(late), harness.now).reason is Reason.RESOURCES


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_a_job_near_a_later_job_starts_in_the_same_pass(backfill: Backfill) -> None:
    harness = harness_of(replace(PIPELINE, backfill=backfill))
    near = harness.submit(job(near="app=ps on rack"))
    server = harness.submit(at("d", "app=ps"))
    harness.tick()
    assert harness.nodes_of(server) == ["d"]
    assert harness.nodes_of(near) in (["c"], ["d"])


def test_a_job_with_anti_affinity_starts_when_the_conflicting_job_has_ended() -> None:
    harness = harness_of(PIPELINE)
    first = [harness.submit(job("app=db", apart="app=db on rack")) for _ in range(3)]
    last = harness.submit(job("app=db", apart="app=db on rack"))
    harness.tick()
    for each in first:
        harness.start(each)
    harness.exit(first[1])
    harness.tick()
    assert harness.nodes_of(last) == ["c"]


def test_explain_names_the_missing_affinity() -> None:
    harness = harness_of(PIPELINE)
    number = harness.submit(job(near="app=ps on rack"))
    harness.tick()
    why = harness.engine.explain(harness.job(number), harness.now)
    assert [(loss.filter, loss.lost, loss.message) for loss in why.losses] == [
        ("company", 5, "not 'near app=ps on rack'")
    ]


@pytest.mark.parametrize("text", ["", "app", "app=ps", "app=ps on", "app on rack"])
def test_invalid_job_affinity_term_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 'app=ps on rack'"):
        parse_job_term(text, 1)


def test_invalid_labels_are_reported() -> None:
    assert [where for where, _ in spec_problems(spec(1, labels={"a b": "x"}))] == ["labels.a b"]


# EASY reserves a start for the first waiting job that respects its job affinity. Nodes a and b are in rack
# r1, c in r2; each has two GPUs. Running jobs: (node, GPUs, seconds left, label). Then the first waiting job,
# a job that might pass it, the start of the first job, and the node of the other job.
FOREVER, LATE, SOON = 10_000, 1_000, 100
WHOLE = 2
PROMISES: list[tuple[str, list[tuple[str, float, float, str]], JobSpec, JobSpec, float, str]] = [
    (
        "apart: not where the other still is when there is room",
        [("a", 0, FOREVER, "app=x"), ("a", 2, SOON, ""), ("b", 1, LATE, ""), ("c", 2, FOREVER, "")],
        job(apart="app=x on node", gpus=WHOLE),
        job(),
        LATE,
        "-",
    ),
    (
        "apart: where the other has left by then",
        [("a", 0, SOON, "app=x"), ("a", 2, LATE, ""), ("b", 1, FOREVER, ""), ("c", 2, FOREVER, "")],
        job(apart="app=x on node", gpus=WHOLE),
        job(),
        LATE,
        "b",
    ),
    (
        "apart: nobody of those comes to where it will be",
        [("a", 2, SOON, ""), ("b", 2, FOREVER, ""), ("c", 1, FOREVER, "")],
        job(apart="app=x on rack", gpus=WHOLE),
        job("app=x", gpus=0),
        SOON,
        "c",
    ),
    (
        "others with another label may",
        [("a", 2, SOON, ""), ("b", 2, FOREVER, ""), ("c", 1, FOREVER, "")],
        job(apart="app=x on rack", gpus=WHOLE),
        job("app=y", gpus=0),
        SOON,
        "a",
    ),
    (
        "a job that excludes the first keeps off its reserved node",
        [("a", 2, SOON, ""), ("b", 2, FOREVER, ""), ("c", 1, FOREVER, "")],
        job("app=h", gpus=WHOLE),
        job(apart="app=h on rack", gpus=0),
        SOON,
        "c",
    ),
    (
        "near: not where there is room first, but where the other is",
        [("a", 0, FOREVER, "app=x"), ("a", 2, FOREVER, ""), ("b", 1, LATE, ""), ("c", 2, SOON, "")],
        job(near="app=x on rack", gpus=WHOLE),
        job(),
        LATE,
        "-",
    ),
    (
        "near: no promise once the other has left",
        [("a", 0, SOON, "app=x"), ("a", 2, FOREVER, ""), ("b", 1, LATE, ""), ("c", 2, FOREVER, "")],
        job(near="app=x on rack", gpus=WHOLE),
        job(),
        0,
        "b",
    ),
    (
        "over two racks: the other rack is kept from those that would be the second",
        [("a", 0, FOREVER, "app=x"), ("a", 2, FOREVER, ""), ("b", 2, FOREVER, ""), ("c", 2, SOON, "")],
        job("app=x", over="app=x on rack=2", gpus=WHOLE),
        job("app=x", gpus=0),
        SOON,
        "b",
    ),
]


@pytest.mark.parametrize(
    ("running", "first", "other", "promised", "passes"),
    [row[1:] for row in PROMISES],
    ids=[row[0] for row in PROMISES],
)
def test_backfill_respects_job_affinity(
    running: list[tuple[str, float, float, str]],
    first: JobSpec,
    other: JobSpec,
    promised: float,
    passes: str,
) -> None:
    harness = EngineHarness()
    for node, rack in RACKS.items():
        if node in "abc":
            harness.join(node, gpus=2, labels={"rack": rack})
    for node, gpus, ends, label in running:
        harness.submit(job(label, gpus=gpus, selector={"node": node}, time_limit_s=ends))
    assert len(harness.tick()) == len(running)
    head = harness.submit(first)
    passer = harness.submit(other)
    harness.tick()
    shadow = harness.engine.cycle.first_reservation(harness.now)
    assert harness.nodes_of(head) == []
    assert (shadow.starts_at - harness.now if shadow is not None else 0) == promised
    assert ("".join(harness.nodes_of(passer)) or "-") == passes


def test_freed_resources_are_kept_from_jobs_that_break_affinity() -> None:
    """A job submitted while victims leave must not break the affinity of the preemptor."""
    guards = PreemptionGuards(min_runtime_s=0.0)
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(gap=10),), guards=guards))
    harness.join("a", gpus=2)
    low = harness.submit(spec(2, priority=10))
    harness.tick()
    harness.start(low)
    high = harness.submit(job(apart="app=x on node", gpus=2, priority=90))
    harness.tick()
    assert harness.job(high).reason is Reason.PREEMPTING
    other = harness.submit(job("app=x", gpus=0))
    assert harness.tick() == []
    assert (
        harness.restarted().state.nodes.job_affinity.snapshot() == harness.state.nodes.job_affinity.snapshot()
    )
    harness.exit(low, why="preempted")
    harness.tick()
    assert (harness.nodes_of(high), harness.nodes_of(other)) == (["a"], [])


# Conservative backfill, two nodes of two GPUs. Running jobs, submitted jobs, and their nodes after one cycle.
AT_ONCE: list[tuple[str, list[JobSpec], list[JobSpec], str]] = [
    (
        "a job excluded from all nodes leaves the room to later jobs",
        [at("a", "app=x"), at("b", "app=x")],
        [job(apart="app=x on node"), job(), job()],
        "-ab",
    ),
    (
        "two that are apart from each other are not promised the same node",
        [],
        [job("app=w", apart="app=w on node") for _ in range(3)],
        "ab-",
    ),
    ("near: both jobs start in the same cycle", [], [job("app=ps"), job(near="app=ps on node")], "aa"),
    (
        "near: when the other comes behind it, too",
        [],
        [job(near="app=ps on node"), job("app=ps")],
        "aa",
    ),
    (
        "no job has a reservation beside a job that excludes it",
        [],
        [job(apart="app=x on node", gpus=1), job("app=x"), job("app=x"), job("app=x")],
        "abb-",
    ),
]


@pytest.mark.parametrize(
    ("running", "coming", "nodes"), [row[1:] for row in AT_ONCE], ids=[row[0] for row in AT_ONCE]
)
def test_jobs_that_start_at_once_under_conservative_backfill(
    running: list[JobSpec], coming: list[JobSpec], nodes: str
) -> None:
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
    for name in "ab":
        harness.join(name, gpus=2)
    for each in running:
        harness.submit(each)
    harness.tick()
    submitted = [harness.submit(replace(each, time_limit_s=100.0)) for each in coming]
    harness.tick()
    assert (
        "".join(harness.nodes_of(each)[0] if harness.nodes_of(each) else "-" for each in submitted) == nodes
    )


@pytest.mark.parametrize(("user", "node"), [("ada", "c"), ("eve", "a")])
def test_a_running_job_keeps_only_jobs_of_its_own_user_off_its_rack(user: str, node: str) -> None:
    """Otherwise a user with one small job in each rack could keep the labelled jobs of others waiting."""
    harness = harness_of(PIPELINE)
    harness.submit(job(apart="app=db on rack", selector={"node": "a"}), "ada")
    harness.tick()
    labelled = harness.submit(job("app=db"), user)
    harness.tick()
    assert harness.nodes_of(labelled) == [node]
    assert harness.restarted().job(labelled).ask is harness.job(labelled).ask


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
@pytest.mark.parametrize(("user", "nodes"), [("ada", []), ("eve", ["b"])])
def test_a_waiting_job_keeps_only_jobs_of_its_own_user_off_its_rack(
    backfill: Backfill, user: str, nodes: list[str]
) -> None:
    harness = harness_of(replace(PIPELINE, backfill=backfill))
    harness.submit(spec(2, selector={"node": "a"}, time_limit_s=SOON), "ada")
    harness.tick()
    waiting = harness.submit(job(apart="app=db on rack", gpus=WHOLE, selector={"node": "a"}), "ada")
    harness.tick()
    labelled = harness.submit(job("app=db", selector={"node": "b"}), user)
    harness.tick()
    assert (harness.nodes_of(waiting), harness.nodes_of(labelled)) == ([], nodes)


def test_a_job_stays_apart_from_the_running_jobs_of_all_users() -> None:
    """This restricts only the job that asks for it."""
    harness = harness_of(PIPELINE)
    harness.submit(at("a", "app=db"), "ada")
    harness.tick()
    apart = harness.submit(job(apart="app=db on rack"), "eve")
    harness.tick()
    assert harness.nodes_of(apart) == ["c"]
