"""Jobs with an image are placed on nodes with a container runtime."""

from __future__ import annotations

from controller.core.model.inputs import job_inputs
from tests.engine_harness import EngineHarness, spec
from wire.names import Reason

IMAGE = "docker.io/library/python:3.12"


def test_a_job_with_an_image_is_placed_on_a_node_with_a_runtime() -> None:
    harness = EngineHarness()
    harness.join("a1")
    harness.join("a2", runtime="podman 4.9.3")
    plain, contained = (
        harness.submit(spec(1)),
        harness.submit(spec(1, image=IMAGE, mounts=("/data:/mnt:ro",))),
    )
    starts = {start.job: start for start in harness.tick()}
    assert harness.nodes_of(contained) == ["a2"]
    assert (starts[contained].image, starts[contained].mounts) == (IMAGE, ("/data:/mnt:ro",))
    assert starts[plain].image == ""


def test_waiting_reason_names_the_nodes_without_a_runtime() -> None:
    harness = EngineHarness()
    for name in ("a1", "a2", "a3"):
        harness.join(name)
    harness.join("b1", gpus=1, runtime="docker 28.2.2")
    first, second = (harness.submit(spec(1, image=IMAGE)) for _ in range(2))
    harness.tick()
    assert harness.nodes_of(first) == ["b1"]
    why = harness.why(second)
    assert why.reason is Reason.RESOURCES
    [lost] = [each for each in why.losses if each.filter == "image"]
    assert (lost.lost, lost.message, lost.examples) == (
        3,
        "no container runtime that gives GPUs",
        ("a1", "a2", "a3"),
    )


def test_a_cluster_without_a_runtime_refuses() -> None:
    harness = EngineHarness()
    harness.join("a1")
    refusal = harness.refuse(job_inputs.Submit(spec(1, image=IMAGE), "ada"))
    assert refusal.code == "never_fits"
    assert "1 node: no container runtime" in refusal.message


def test_a_runtime_without_gpu_support_gets_image_jobs_without_gpus() -> None:
    harness = EngineHarness()
    harness.join("a1", runtime="docker 28.2.2", image_gpus="docker has no NVIDIA runtime: install it")
    harness.join("b1", gpus=1, runtime="docker 28.2.2")
    first, second = (harness.submit(spec(1, image=IMAGE)) for _ in range(2))
    plain = harness.submit(spec(0, image=IMAGE, selector={"node": "a1"}))
    harness.tick()
    assert (harness.nodes_of(first), harness.nodes_of(second), harness.nodes_of(plain)) == (
        ["b1"],
        [],
        ["a1"],
    )
    assert "no container runtime that gives GPUs" in str(harness.why(second).losses)


def test_a_node_that_gains_a_runtime_starts_waiting_image_jobs() -> None:
    harness = EngineHarness()
    harness.join("a1")
    harness.join("b1", gpus=1, runtime="podman 4.9.3")
    first, second = (harness.submit(spec(1, image=IMAGE)) for _ in range(2))
    harness.tick()
    assert harness.nodes_of(second) == []
    harness.join("a1", runtime="apptainer 1.3.0")
    harness.tick()
    assert (harness.nodes_of(first), harness.nodes_of(second)) == (["b1"], ["a1"])


def test_invalid_image_or_mount_is_refused() -> None:
    harness = EngineHarness()
    harness.join("a1", runtime="podman 4.9.3")
    for where, more in {
        "image": {"image": "--privileged"},
        "mounts": {"mounts": ("/data",)},
        "mounts[1]": {"image": IMAGE, "mounts": ("/data", "data")},
    }.items():
        refusal = harness.refuse(job_inputs.Submit(spec(1, **more), "ada"))
        assert (refusal.code, refusal.where) == ("invalid", where)
