"""Labels, taints and affinity: where each job is placed, and which jobs are evicted."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.events.attempts import JobRequeued, StopRequested
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.pipeline.pipeline import Pipeline
from tests.engine_harness import PIPELINE, EngineHarness, default_pipeline, spec
from wire.job.placement.affinity import parse_preference, parse_taint, parse_term, parse_toleration
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

NODES: dict[str, dict[str, str]] = {
    "a": {"zone": "east", "cores": "32"},
    "b": {"zone": "west", "cores": "128", "disk": "nvme"},
    "c": {"cores": "many"},
}


def wants(*terms: str) -> JobSpec:
    return spec(1, affinity=tuple(map(parse_term, terms)))


def rather(*terms: str) -> JobSpec:
    return spec(1, preferences=tuple(map(parse_preference, terms)))


def bears(*taints: str) -> JobSpec:
    return spec(1, tolerations=tuple(map(parse_toleration, taints)))


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


def mark(harness: EngineHarness, node: str, *taints: str, take: bool = False, **labels: str | None) -> None:
    found = [parse_taint(text) for text in taints]
    changes = {f"{each.key}:{each.effect.value}": None if take else each.value for each in found}
    harness.tell(node_inputs.MarkNode(node, "root", labels, changes))


@pytest.mark.parametrize("pipeline", [PIPELINE, default_pipeline()], ids=["fit", "default"])
@pytest.mark.parametrize(
    ("taints", "job", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_node_chosen_under_affinity_and_taints(
    taints: dict[str, str], job: JobSpec, expected: str | None, pipeline: Pipeline
) -> None:
    harness = EngineHarness(pipeline)
    for name, labels in NODES.items():
        harness.join(name, labels=labels)
    for name, taint in taints.items():
        mark(harness, name, taint)
    number = harness.submit(job)
    harness.tick()
    assert harness.nodes_of(number) == ([] if expected is None else [expected])


def running(*specs: JobSpec) -> tuple[EngineHarness, list[int]]:
    """One node with these jobs running on it, and an empty one."""
    harness = EngineHarness()
    harness.join("a")
    jobs = [harness.submit(each) for each in specs]
    harness.tick()
    for job in jobs:
        harness.start(job)
    harness.join("b")
    return harness, jobs


def test_no_execute_taint_evicts_jobs_without_a_toleration() -> None:
    harness, (leaves, stays) = running(spec(1), bears("broken"))
    mark(harness, "a", "broken:NoExecute")
    assert harness.stops() == [("a", leaves)]
    assert [event.reason for event in harness.events if isinstance(event, StopRequested)] == [Reason.EVICTED]
    harness.exit(leaves, None, signal=15, why="evicted")
    (requeued,) = [event for event in harness.events if isinstance(event, JobRequeued)]
    assert requeued.detail == "evicted: taint broken:NoExecute of a"
    assert harness.job(leaves).state is JobState.QUEUED
    harness.tick()
    assert harness.nodes_of(leaves) == ["b"]
    assert harness.job(leaves).attempt == 2
    assert harness.nodes_of(stays) == ["a"]


def test_an_evicted_job_whose_host_reboots_is_queued_again() -> None:
    """It was to leave the host anyway, so the loss of the host is no reason to fail it."""
    harness, (job,) = running(spec(1))
    mark(harness, "a", "broken:NoExecute")
    harness.join("a", boot="b2")
    assert harness.job(job).state is JobState.QUEUED


def test_an_evicted_job_that_succeeds_meanwhile_is_not_requeued() -> None:
    harness, (job,) = running(spec(1))
    mark(harness, "a", "broken:NoExecute")
    harness.exit(job, 0)
    assert harness.job(job).state is JobState.COMPLETED


def test_an_evicted_job_that_is_cancelled_meanwhile_is_cancelled() -> None:
    harness, (job,) = running(spec(1))
    mark(harness, "a", "broken:NoExecute")
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.exit(job, None, signal=15, why="cancelled")
    assert harness.job(job).state is JobState.CANCELLED


def test_eviction_stop_is_sent_again_when_the_node_returns() -> None:
    harness, (job,) = running(spec(1))
    harness.tell(agent_inputs.LinkWentDown("a", "cut"))
    mark(harness, "a", "broken:NoExecute")
    harness.join("a")
    assert harness.stops() == [("a", job), ("a", job)]


def test_forecast_includes_the_restart_of_evicted_jobs() -> None:
    harness, (job,) = running(spec(1, time_limit_s=60.0))
    mark(harness, "a", "broken:NoExecute")
    assert forecast(fork(harness.engine), harness.now).starts[job].nodes == ("b",)


def test_a_configured_taint_bars_jobs_and_can_be_removed_live() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.tell(node_inputs.AddNode("a", {}, taints=(parse_taint("gpu=big:NoSchedule"),)))
    job = harness.submit(bears("other"))
    harness.tick()
    assert harness.job(job).state is JobState.QUEUED
    mark(harness, "a", "gpu:NoSchedule", take=True)
    assert [start.job for start in harness.tick()] == [job]


def test_live_labels_override_the_configuration_and_survive_a_rejoin() -> None:
    harness = EngineHarness()
    harness.join("a", labels={"rack": "r1", "disk": "hdd"})
    node = harness.state.nodes.by_name["a"]
    mark(harness, "a", disk="nvme", rack=None, zone="east")
    assert node.effective_labels == {"disk": "nvme", "zone": "east"}
    harness.tell(node_inputs.AddNode("a", {"zone": "west"}))
    assert node.effective_labels == {"disk": "nvme", "zone": "east"}
    mark(harness, "a", zone=None)
    assert node.effective_labels == {"disk": "nvme"}
    assert harness.submit(wants("disk in nvme")) == 1


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
def test_invalid_taint_or_label_is_refused(labels: Any, taints: Any, where: str) -> None:
    harness = EngineHarness()
    harness.join("a")
    assert harness.refuse(node_inputs.MarkNode("a", "root", labels, taints)).where == where


def test_explain_counts_the_nodes_lost_by_each_filter() -> None:
    harness = EngineHarness()
    for name, labels in NODES.items():
        harness.join(name, labels=labels)
    mark(harness, "b", "x:NoSchedule")
    job = harness.submit(spec(8, affinity=(parse_term("zone exists"),)))
    harness.submit(spec(1, priority=75, affinity=(parse_term("node in a"),)))
    harness.tick()
    why = harness.engine.explain(harness.job(job), harness.now)
    losses = {loss.filter: (loss.lost, loss.message) for loss in why.losses}
    assert losses["affinity"] == (1, "does not meet 'zone exists'")
    assert losses["taints"] == (1, "tainted, and it tolerates none")
    assert losses["gpu"] == (1, "fewer than 8 free GPUs")


def test_explain_counts_the_nodes_lost_by_each_affinity_term() -> None:
    harness = EngineHarness()
    for name, zone, disk in (("a", "x", "nvme"), ("b", "y", "nvme"), ("c", "y", "hdd"), ("d", "y", "hdd")):
        harness.join(name, labels={"zone": zone, "disk": disk})
    holder = harness.submit(spec(8, affinity=(parse_term("node in b"),)))
    harness.tick()
    assert harness.nodes_of(holder) == ["b"]
    job = harness.submit(spec(8, affinity=(parse_term("zone in y"), parse_term("disk in ssd,nvme"))))
    harness.tick()
    losses = [(loss.filter, loss.lost, loss.message) for loss in harness.why(job).losses]
    assert ("affinity", 1, "does not meet 'zone in y'") in losses
    assert ("affinity", 2, "does not meet 'disk in ssd,nvme'") in losses


def test_a_job_that_selects_an_engine_tolerates_the_taint_of_this_engine_alone() -> None:
    harness = EngineHarness(PIPELINE)
    for name, engine in (("a", "slurm"), ("b", "docker")):
        harness.join(name, labels={"engine": engine})
        harness.tell(node_inputs.AddNode(name, taints=(parse_taint(f"engine={engine}:NoSchedule"),)))
    job = harness.submit(spec(1, selector={"engine": "docker"}))
    other = harness.submit(spec(1))
    harness.tick()
    assert harness.nodes_of(job) == ["b"]
    assert harness.nodes_of(other) == []
