"""Labels, taints and what jobs say about them: stories of where each job goes, and who has to leave."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import inputs
from controller.core.events import JobRequeued, StopRequested
from controller.core.forecast import forecast, fork
from controller.core.plugin import Pipeline
from tests.worlds import PIPELINE, World, default_pipeline, spec
from wire.affinity import preference_of, taint_of, term_of, toleration_of
from wire.spec import JobSpec
from wire.words import JobState, Reason

NODES: dict[str, dict[str, str]] = {
    "a": {"zone": "east", "cores": "32"},
    "b": {"zone": "west", "cores": "128", "disk": "nvme"},
    "c": {"cores": "many"},
}


def wants(*terms: str) -> JobSpec:
    return spec(1, affinity=tuple(map(term_of, terms)))


def rather(*terms: str) -> JobSpec:
    return spec(1, preferences=tuple(map(preference_of, terms)))


def bears(*taints: str) -> JobSpec:
    return spec(1, tolerations=tuple(map(toleration_of, taints)))


# (story, taints by node, the job, the node it gets; None: it waits)
TABLE: list[tuple[str, dict[str, str], JobSpec, str | None]] = [
    ("In: one of the values", {}, wants("zone in west,south"), "b"),
    ("NotIn: another value, or none", {}, wants("zone not in east,west"), "c"),
    ("Exists: whatever it says", {}, wants("disk exists"), "b"),
    ("DoesNotExist", {}, wants("zone missing"), "c"),
    ("Gt compares numbers, not texts: 128 is above 64", {}, wants("cores > 64"), "b"),
    ("Lt: what is no number is not below one", {}, wants("cores < 64"), "a"),
    ("all terms count", {}, wants("zone exists", "cores > 64"), "b"),
    ("the name is a label", {}, wants("node in c"), "c"),
    ("a preference beats the order of names", {}, rather("zone in west"), "b"),
    ("the heavier preference counts", {}, rather("zone in west weight 9", "zone missing weight 90"), "c"),
    ("a preference that nobody meets is no demand", {}, rather("zone in south"), "a"),
    ("NoSchedule keeps away", {"a": "x:NoSchedule"}, spec(1), "b"),
    ("NoExecute keeps away too", {"a": "x:NoExecute"}, spec(1), "b"),
    ("PreferNoSchedule: there is another place", {"a": "x:PreferNoSchedule"}, spec(1), "b"),
    ("a taint that is borne does not keep away", {"a": "x=1:NoSchedule"}, bears("x=1:NoSchedule"), "a"),
    ("the value must be the same", {"a": "x=1:NoSchedule"}, bears("x=2"), "b"),
    ("without a value all are borne", {"a": "x=1:NoSchedule"}, bears("x"), "a"),
    ("the effect must be the same", {"a": "x:NoExecute"}, bears("x:NoSchedule"), "b"),
    ("* bears everything", {"a": "x:NoExecute", "b": "y:NoSchedule"}, bears("*"), "a"),
    ("where all are tainted, it waits", dict.fromkeys("abc", "x:NoSchedule"), spec(1), None),
    ("avoided is better than waiting", dict.fromkeys("abc", "x:PreferNoSchedule"), spec(1), "a"),
]  # fmt: skip


def mark(world: World, node: str, *taints: str, take: bool = False, **labels: str | None) -> None:
    found = [taint_of(text) for text in taints]
    changes = {f"{each.key}:{each.effect.value}": None if take else each.value for each in found}
    world.tell(inputs.MarkNode(node, "root", labels, changes))


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(
    ("taints", "job", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_table(taints: dict[str, str], job: JobSpec, expected: str | None, pipeline: Pipeline) -> None:
    world = World(pipeline)
    for name, labels in NODES.items():
        world.join(name, labels=labels)
    for name, taint in taints.items():
        mark(world, name, taint)
    number = world.submit(job)
    world.tick()
    assert world.nodes_of(number) == ([] if expected is None else [expected])


def running(*specs: JobSpec) -> tuple[World, list[int]]:
    """One node with these jobs running on it, and an empty one."""
    world = World()
    world.join("a")
    jobs = [world.submit(each) for each in specs]
    world.tick()
    for job in jobs:
        world.start(job)
    world.join("b")
    return world, jobs


def test_a_no_execute_taint_makes_those_leave_that_do_not_bear_it() -> None:
    world, (leaves, stays) = running(spec(1), bears("broken"))
    mark(world, "a", "broken:NoExecute")
    assert world.stops() == [("a", leaves)]
    assert [event.reason for event in world.events if isinstance(event, StopRequested)] == [Reason.EVICTED]
    world.exit(leaves, None, signal=15, why="evicted")
    (requeued,) = [event for event in world.events if isinstance(event, JobRequeued)]
    assert requeued.detail == "evicted: taint broken:NoExecute of a"
    assert world.job(leaves).state is JobState.QUEUED
    world.tick()
    assert world.nodes_of(leaves) == ["b"]
    assert world.job(leaves).attempt == 2
    assert world.nodes_of(stays) == ["a"]


def test_a_host_that_reboots_before_one_has_left_does_not_run_it_again() -> None:
    """It may have come to its end, unheard of, before the host went down."""
    world, (job,) = running(spec(1))
    mark(world, "a", "broken:NoExecute")
    world.join("a", boot="b2")
    assert (world.job(job).state, world.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_one_that_ends_well_while_it_leaves_is_not_run_again() -> None:
    world, (job,) = running(spec(1))
    mark(world, "a", "broken:NoExecute")
    world.exit(job, 0)
    assert world.job(job).state is JobState.COMPLETED


def test_one_that_is_cancelled_while_it_leaves_is_cancelled() -> None:
    world, (job,) = running(spec(1))
    mark(world, "a", "broken:NoExecute")
    world.tell(inputs.Cancel(job, "ada"))
    world.exit(job, None, signal=15, why="cancelled")
    assert world.job(job).state is JobState.CANCELLED


def test_it_is_told_to_leave_again_when_its_node_was_away() -> None:
    world, (job,) = running(spec(1))
    world.tell(inputs.LinkWentDown("a", "cut"))
    mark(world, "a", "broken:NoExecute")
    world.join("a")
    assert world.stops() == [("a", job), ("a", job)]


def test_a_forecast_knows_that_who_leaves_will_start_again() -> None:
    world, (job,) = running(spec(1, time_limit_s=60.0))
    mark(world, "a", "broken:NoExecute")
    assert forecast(fork(world.engine), world.now).starts[job].nodes == ("b",)


def test_a_taint_of_the_configuration_counts_like_any_other_and_can_be_taken_away() -> None:
    world = World()
    world.join("a")
    world.tell(inputs.AddNode("a", {}, taints=(taint_of("gpu=big:NoSchedule"),)))
    job = world.submit(bears("other"))
    world.tick()
    assert world.job(job).state is JobState.QUEUED
    mark(world, "a", "gpu:NoSchedule", take=True)
    assert [start.job for start in world.tick()] == [job]


def test_labels_set_live_stand_over_the_configuration_and_outlive_it() -> None:
    world = World()
    world.join("a", labels={"rack": "r1", "disk": "hdd"})
    node = world.state.nodes.by_name["a"]
    mark(world, "a", disk="nvme", rack=None, zone="east")
    assert node.all_labels == {"disk": "nvme", "zone": "east"}
    world.tell(inputs.AddNode("a", {"zone": "west"}))
    assert node.all_labels == {"disk": "nvme", "zone": "east"}
    mark(world, "a", zone=None)
    assert node.all_labels == {"disk": "nvme"}
    assert world.submit(wants("disk in nvme")) == 1


@pytest.mark.parametrize(
    ("labels", "taints", "where"),
    [
        ({"": "x"}, {}, "labels."),
        ({"node": "b"}, {}, "labels.node"),
        ({"ok": "x\0"}, {}, "labels.ok"),
        ({}, {"x": ""}, "taints.x"),
        ({}, {"x:Never": ""}, "taints.x:Never"),
    ],
)
def test_a_mark_that_cannot_be_is_refused(labels: Any, taints: Any, where: str) -> None:
    world = World()
    world.join("a")
    assert world.refuse(inputs.MarkNode("a", "root", labels, taints)).where == where


def test_explain_tells_who_is_lost_to_what() -> None:
    world = World()
    for name, labels in NODES.items():
        world.join(name, labels=labels)
    mark(world, "b", "x:NoSchedule")
    job = world.submit(spec(8, affinity=(term_of("zone exists"),)))
    world.submit(spec(1, priority=75, affinity=(term_of("node in a"),)))
    world.tick()
    why = world.engine.explain(world.job(job), world.now)
    told = {loss.filter: (loss.lost, loss.message) for loss in why.losses}
    assert told["affinity"] == (1, "does not meet 'zone exists'")
    assert told["taints"] == (1, "tainted, and it tolerates none")
    assert told["gpu"] == (1, "fewer than 8 free GPUs")
