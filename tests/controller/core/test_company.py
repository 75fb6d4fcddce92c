"""Jobs near others and apart from them: stories of racks."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.plugin import Pipeline
from tests.worlds import PIPELINE, World, default_pipeline, spec
from wire.company import job_term_of
from wire.spec import JobSpec, problems
from wire.words import JobState, Reason

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3"}
"""Five nodes with two GPUs each."""


def job(
    labels: str = "", near: str = "", apart: str = "", over: str = "", gpus: float = 1, **more: Any
) -> JobSpec:
    terms = [job_term_of(text, 1) for text in (near,) if text]
    terms += [job_term_of(text, None) for text in (apart,) if text]
    terms += [job_term_of(text, 0) for text in (over,) if text]
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
        "who is refused stays away although it has nothing against anybody",
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


def world_of(pipeline: Pipeline) -> World:
    world = World(pipeline)
    for name, rack in RACKS.items():
        world.join(name, gpus=2, labels={"rack": rack})
    return world


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(("jobs", "nodes"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(jobs: list[JobSpec], nodes: str, pipeline: Pipeline) -> None:
    world = world_of(pipeline)
    ids = [world.submit(each) for each in jobs]
    for _ in ids:
        world.tick()
    assert "".join("".join(world.nodes_of(each)) or "-" for each in ids) == nodes


def test_who_waits_for_company_starts_when_it_comes_and_not_when_it_has_gone() -> None:
    world = world_of(PIPELINE)
    follower = world.submit(job(near="app=ps on rack"))
    assert world.tick() == []
    server = world.submit(at("d", "app=ps"))
    world.tick()
    world.start(server)
    world.tick()
    assert world.nodes_of(follower) == ["c"] or world.nodes_of(follower) == ["d"]
    world.start(follower)
    world.exit(server)
    late = world.submit(job(near="app=ps on rack"))
    world.tick()
    assert world.job(late).state is JobState.QUEUED
    assert world.engine.explain(world.job(late), world.now).reason is Reason.RESOURCES


def test_who_waits_for_others_to_go_starts_when_they_have() -> None:
    world = world_of(PIPELINE)
    first = [world.submit(job("app=db", apart="app=db on rack")) for _ in range(3)]
    last = world.submit(job("app=db", apart="app=db on rack"))
    world.tick()
    for each in first:
        world.start(each)
    world.exit(first[1])
    world.tick()
    assert world.nodes_of(last) == ["c"]


def test_explain_tells_whose_company_is_lacking() -> None:
    world = world_of(PIPELINE)
    number = world.submit(job(near="app=ps on rack"))
    world.tick()
    why = world.engine.explain(world.job(number), world.now)
    assert [(loss.filter, loss.lost, loss.message) for loss in why.losses] == [
        ("company", 5, "not 'near app=ps on rack'")
    ]


@pytest.mark.parametrize("text", ["", "app", "app=ps", "app=ps on", "app on rack"])
def test_what_is_no_term_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 'app=ps on rack'"):
        job_term_of(text, 1)


def test_what_makes_no_sense_is_said() -> None:
    assert [where for where, _ in problems(spec(1, labels={"a b": "x"}))] == ["labels.a b"]
