"""Jobs with an image go where something runs images."""

from __future__ import annotations

from controller.core import inputs
from tests.worlds import World, spec
from wire.words import Reason

IMAGE = "docker.io/library/python:3.12"


def test_a_job_with_an_image_goes_where_images_run() -> None:
    world = World()
    world.join("a1")
    world.join("a2", runtime="podman 4.9.3")
    plain, contained = world.submit(spec(1)), world.submit(spec(1, image=IMAGE, mounts=("/data:/mnt:ro",)))
    starts = {start.job: start for start in world.tick()}
    assert world.nodes_of(contained) == ["a2"]
    assert (starts[contained].image, starts[contained].mounts) == (IMAGE, ("/data:/mnt:ro",))
    assert starts[plain].image == ""


def test_why_it_waits_names_the_nodes_without() -> None:
    world = World()
    for name in ("a1", "a2", "a3"):
        world.join(name)
    world.join("b1", gpus=1, runtime="docker 28.2.2")
    first, second = (world.submit(spec(1, image=IMAGE)) for _ in range(2))
    world.tick()
    assert world.nodes_of(first) == ["b1"]
    why = world.why(second)
    assert why.reason is Reason.RESOURCES
    [lost] = [each for each in why.losses if each.filter == "image"]
    assert (lost.lost, lost.message, lost.examples) == (3, "no container runtime", ("a1", "a2", "a3"))


def test_a_cluster_without_a_runtime_refuses() -> None:
    world = World()
    world.join("a1")
    refusal = world.refuse(inputs.Submit(spec(1, image=IMAGE), "ada"))
    assert refusal.code == "never_fits"
    assert "1 node: no container runtime" in refusal.message


def test_a_node_that_gets_a_runtime_takes_what_waits() -> None:
    world = World()
    world.join("a1")
    world.join("b1", gpus=1, runtime="podman 4.9.3")
    first, second = (world.submit(spec(1, image=IMAGE)) for _ in range(2))
    world.tick()
    assert world.nodes_of(second) == []
    world.join("a1", runtime="apptainer 1.3.0")
    world.tick()
    assert (world.nodes_of(first), world.nodes_of(second)) == (["b1"], ["a1"])


def test_what_is_no_image_or_mount_is_refused() -> None:
    world = World()
    world.join("a1", runtime="podman 4.9.3")
    for where, more in {
        "image": {"image": "--privileged"},
        "mounts": {"mounts": ("/data",)},
        "mounts[1]": {"image": IMAGE, "mounts": ("/data", "data")},
    }.items():
        refusal = world.refuse(inputs.Submit(spec(1, **more), "ada"))
        assert (refusal.code, refusal.where) == ("invalid", where)
