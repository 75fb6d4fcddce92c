"""Makes the request that creates the container of a job, in the form of the Docker API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wire.agent.orders import Start

TAG_LABEL, CLUSTER_LABEL, MERGED_LABEL = "corral.tag", "corral.cluster", "corral.merged"
"""The labels of each container: its tag (name), the tag prefix of this cluster, and `1` if the job's stderr
goes to its stdout.
"""


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The options of the engine that determine the settings of each container."""

    image: str = ""
    """The image of jobs without --image."""
    network: str = "host"
    init: bool = True
    max_processes: int = 16_384
    mount_roots: Sequence[str] = ()
    device_paths: Mapping[str, Sequence[str]] | None = None
    """The device files of each GPU, by UUID. None: the GPUs are passed by the NVIDIA runtime of Docker."""


class RequestProblem(ValueError):
    """Raised for a job that no container of this engine can run. The message is for users."""


def container_request(
    order: Start, tag: str, prefix: str, user: str, groups: Sequence[int], rules: ContainerRules
) -> dict[str, Any]:
    """Return the body of the request `POST /containers/create`. Raise RequestProblem if the job has no image,
    or mounts a path that is not below the mount roots.

    `user` is `uid:gid`. A container has no capabilities and cannot gain privileges, so its processes have
    only the rights of the job's user and of the groups `groups`.
    """
    image = order.image or rules.image
    if not image:
        raise RequestProblem("a container needs an image: submit the job with --image")
    memory, cpu = order.most_memory_mib, order.most_cpu_milli
    host: dict[str, Any] = {
        "NetworkMode": rules.network,
        "Init": rules.init,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "GroupAdd": [str(group) for group in groups],
        "PidsLimit": rules.max_processes,
        "CpuShares": max(2, order.cpu_milli * 1_024 // 1_000),
        "Mounts": [_mount(each, rules.mount_roots) for each in order.mounts],
        "LogConfig": {"Type": "json-file", "Config": {}},
        "RestartPolicy": {"Name": "no"},
    }
    if memory is not None:
        host["Memory"] = host["MemorySwap"] = memory << 20
    if cpu is not None:
        host["NanoCpus"] = cpu * 1_000_000
    host.update(_gpus(order, rules))
    return {
        "Image": image,
        # Replace the entry point of the image, because it would change the command of the job.
        "Entrypoint": [order.command[0]],
        "Cmd": list(order.command[1:]),
        "User": user,
        "Env": [f"{name}={value}" for name, value in sorted(order.env.items())],
        "WorkingDir": order.workdir if order.workdir and _is_mounted(order) else "",
        "Labels": {TAG_LABEL: tag, CLUSTER_LABEL: prefix, MERGED_LABEL: str(int(order.merge_output))},
        "HostConfig": host,
    }


def request_text(body: Mapping[str, Any]) -> str:
    """Return the request as text for users and tests."""
    return json.dumps(body, indent=2, sort_keys=True)


def _gpus(order: Start, rules: ContainerRules) -> dict[str, Any]:
    uuids = [hold.uuid for hold in order.gpus]
    if not uuids:
        return {}
    if rules.device_paths is None:
        return {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": uuids, "Capabilities": [["gpu"]]}]}
    paths = [path for uuid in uuids for path in rules.device_paths.get(uuid, ())]
    return {
        "Devices": [
            {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rw"} for path in paths
        ]
    }


def _mount(text: str, roots: Sequence[str]) -> dict[str, Any]:
    """Return one mount of --mount, `SOURCE[:TARGET][:ro]`. The source must be a mount root (`mount_roots`) or
    below one, because the daemon opens it as root.
    """
    rest, _, last = text.rpartition(":") if text.endswith((":ro", ":rw")) else (text, "", "")
    source, _, target = rest.partition(":")
    below = any(source == root or source.startswith(f"{root.rstrip('/')}/") for root in roots)
    if not below or ".." in source.split("/"):
        allowed = ", ".join(roots) or "none"
        raise RequestProblem(f"{source} cannot be mounted: the operator allows paths below: {allowed}")
    return {"Type": "bind", "Source": source, "Target": target or source, "ReadOnly": last == "ro"}


def _is_mounted(order: Start) -> bool:
    """Return whether the working directory of the job is in one of its mounts."""
    targets = [text.removesuffix(":ro").removesuffix(":rw").rpartition(":")[2] for text in order.mounts]
    return any(f"{order.workdir}/".startswith(f"{target.rstrip('/')}/") for target in targets)
