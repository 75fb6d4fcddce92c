"""The request that creates a container."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.engines.containers.container_request import (
    ContainerRules,
    RequestProblem,
    container_request,
    request_text,
)
from wire.agent.orders import GpuHold, Start

ORDER = Start(
    7,
    2,
    ("python", "train.py", "--lr", "0.1"),
    "ada",
    1_500,
    2_048,
    env={"B": "2", "A": "1 x"},
    image="torch:2",
    workdir="/data/run",
    mounts=("/data:/data:ro",),
    merge_output=True,
)
RULES = ContainerRules(mount_roots=("/data", "/scratch/"))
TAG = "corral-0f3a9c112233-7-2-0"


def made(order: Start = ORDER, rules: ContainerRules = RULES) -> dict[str, object]:
    return container_request(order, TAG, "corral-0f3a9c112233-", "1000:100", (4, 20), rules)


def test_the_whole_request() -> None:
    assert made() == {
        "Image": "torch:2",
        "Entrypoint": ["python"],
        "Cmd": ["train.py", "--lr", "0.1"],
        "User": "1000:100",
        "Env": ["A=1 x", "B=2"],
        "WorkingDir": "/data/run",
        "Labels": {"corral.tag": TAG, "corral.cluster": "corral-0f3a9c112233-", "corral.merged": "1"},
        "HostConfig": {
            "NetworkMode": "host",
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "GroupAdd": ["4", "20"],
            "PidsLimit": 16_384,
            "CpuShares": 1_536,
            "Mounts": [{"Type": "bind", "Source": "/data", "Target": "/data", "ReadOnly": True}],
            "LogConfig": {"Type": "json-file", "Config": {}},
            "RestartPolicy": {"Name": "no"},
            "Memory": 2_048 << 20,
            "MemorySwap": 2_048 << 20,
            "NanoCpus": 1_500_000_000,
        },
    }
    assert json.loads(request_text(made())) == made()


def test_a_best_effort_job_has_no_limits() -> None:
    host = made(replace(ORDER, best_effort=True))["HostConfig"]
    assert isinstance(host, dict)
    assert {"Memory", "NanoCpus"}.isdisjoint(host)


def test_the_image_of_the_engine_is_the_default() -> None:
    assert made(replace(ORDER, image=""), replace(RULES, image="debian:12"))["Image"] == "debian:12"
    with pytest.raises(RequestProblem, match="needs an image"):
        made(replace(ORDER, image=""))


@pytest.mark.parametrize(
    "mount", ["/etc", "/database", "/data/../etc", "/", "data", "/scratch/../data/../etc"]
)
def test_paths_outside_of_the_roots_are_refused(mount: str) -> None:
    with pytest.raises(RequestProblem, match="the operator allows paths below: /data, /scratch/"):
        made(replace(ORDER, mounts=(mount,)))


def test_without_roots_no_mount_is_allowed() -> None:
    with pytest.raises(RequestProblem, match="below: none"):
        made(rules=ContainerRules())


def test_a_working_directory_that_is_not_mounted_is_left_to_the_image() -> None:
    assert made(replace(ORDER, workdir="/home/ada"))["WorkingDir"] == ""


def test_gpus_by_the_nvidia_runtime_and_by_files() -> None:
    order = replace(ORDER, gpus=(GpuHold("GPU-1", 1_000), GpuHold("GPU-2", 1_000)))
    host = made(order)["HostConfig"]
    assert isinstance(host, dict)
    [request] = host["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["GPU-1", "GPU-2"])
    files = {"GPU-1": ("/dev/nvidia0",), "GPU-2": ("/dev/nvidia1",)}
    host = made(order, replace(RULES, device_paths=files))["HostConfig"]
    assert isinstance(host, dict)
    assert [each["PathOnHost"] for each in host["Devices"]] == ["/dev/nvidia0", "/dev/nvidia1"]
