"""Makes the Pod of a job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wire.agent.orders import Start

TAG_LABEL, CLUSTER_LABEL = "corral/tag", "corral/cluster"
"""The labels of each Pod: its tag, and the cluster of Corral."""
GPUS_NOTE, ENDED_NOTE = "corral/gpus", "corral/ended-by"
"""Annotations of a Pod: the GPUs that Corral counts for it, and `corral` if Corral has ended the Pod."""
FINALIZER = "corral/end-recorded"
"""The finalizer of each Pod. It keeps the Pod and its exit code until Corral has stored the end, whichever
program deletes the Pod.
"""
CONTAINER = "job"
"""The name of the container that runs the command."""
WHOLE_GPU = 1_000


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that Pods of the engine tolerate. An empty `value` or `effect` matches all."""

    key: str
    value: str = ""
    effect: str = ""

    @staticmethod
    def parsed(text: str) -> Toleration:
        """Read `KEY[=VALUE][:EFFECT]`. Raise ValueError if the text has another form."""
        rest, _, effect = text.partition(":")
        key, _, value = rest.partition("=")
        if not key or effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ValueError(f"tolerations: {text!r} is not KEY[=VALUE][:EFFECT], such as gpu=yes:NoSchedule")
        return Toleration(key, value, effect)

    @property
    def manifest(self) -> dict[str, str]:
        body = {"key": self.key, "operator": "Equal" if self.value else "Exists"}
        return {**body, **{k: v for k, v in (("value", self.value), ("effect", self.effect)) if v}}

    def allows(self, taint: Mapping[str, Any]) -> bool:
        return (
            self.key == taint.get("key")
            and self.value in ("", taint.get("value") or "")
            and self.effect in ("", taint.get("effect"))
        )


@dataclass(frozen=True, slots=True)
class PodRules:
    """The options of the engine that decide how Pods are made."""

    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: Sequence[str] = ()
    service_account: str = ""
    priority_class: str = ""
    runtime_class: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    tolerations: Sequence[Toleration] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    """The persistent volume claims that each Pod mounts, by the path in the Pod."""
    shared_memory_mib: int = 0
    """The size of /dev/shm; 0: the size that the container runtime gives."""
    labels: Mapping[str, str] = field(default_factory=dict)
    allow_root: bool = False


@dataclass(frozen=True, slots=True)
class PodUser:
    """The user in the Pod. If `uid` is None, the image names the user."""

    uid: int | None = None
    gid: int | None = None
    groups: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where the Pod runs: on the node with this name, or on a node with these labels that the scheduler of
    Kubernetes chooses.
    """

    namespace: str
    node: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)


class PodProblem(ValueError):
    """Raised for a job that no Pod of this engine can run. The message is for users."""


def cluster_label(prefix: str) -> str:
    """Return the value of CLUSTER_LABEL: the first part of all tags without its hyphen, because the value of
    a label cannot end with a hyphen.
    """
    return prefix.rstrip("-")


def pod_manifest(
    order: Start, tag: str, prefix: str, place: PodPlace, user: PodUser, rules: PodRules
) -> dict[str, Any]:
    """Return the Pod of a job. Raise PodProblem if the job has no image, uses a part of a GPU, or would run
    as root although the engine forbids this.

    1. The Pod has the name of the tag, so the API server refuses a second Pod of the attempt.
    2. It is never restarted: Corral decides whether the job runs again. A Job object would start a
       deleted Pod again, so Corral makes none.
    3. It has no capabilities, cannot gain privileges, uses the default seccomp profile, and gets no token of
       Kubernetes.
    """
    image = order.image or rules.image
    if not image:
        raise PodProblem("a Pod needs an image: submit the job with --image")
    if any(each.milli != WHOLE_GPU for each in order.gpus):
        raise PodProblem("a Pod cannot use a part of a GPU; request whole GPUs")
    if user.uid == 0 and not rules.allow_root:
        raise PodProblem(
            "the job would run as root in its Pod; submit the job as another user, or set run_as in the "
            "table of the engine"
        )
    volumes, mounts = _volumes(rules)
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": rules.image_pull_policy,
        "command": [literal(word) for word in order.command],
        "env": [{"name": name, "value": literal(value)} for name, value in sorted(order.env.items())],
        "resources": _resources(order, rules),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if order.workdir and _is_below(order.workdir, rules.claims):
        container["workingDir"] = order.workdir
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(1, math.ceil(order.grace_s)),
        "securityContext": _security(user, rules),
        "containers": [container],
        "volumes": volumes,
        "tolerations": [each.manifest for each in rules.tolerations],
    }
    if place.node:
        spec["nodeName"] = place.node
    elif place.selector:
        spec["nodeSelector"] = dict(place.selector)
    named = {
        "serviceAccountName": rules.service_account,
        "priorityClassName": rules.priority_class,
        "runtimeClassName": rules.runtime_class,
    }
    spec.update({key: value for key, value in named.items() if value})
    if rules.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in rules.image_pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": tag,
            "namespace": place.namespace,
            "labels": {**rules.labels, TAG_LABEL: tag, CLUSTER_LABEL: cluster_label(prefix)},
            "annotations": {
                "corral/user": order.user,
                "corral/job": str(order.job),
                GPUS_NOTE: ",".join(each.uuid for each in order.gpus),
            },
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }


def manifest_text(body: Mapping[str, Any]) -> str:
    """Return the Pod as text for users and tests. It is JSON, which kubectl reads too."""
    return json.dumps(body, indent=2, sort_keys=True)


def literal(text: str) -> str:
    """Return the text that Kubernetes turns into `text`. Kubernetes replaces `$(NAME)` and `$$` in commands
    and variables before a program starts, so the shell word `$$` would become `$`.
    """
    return text.replace("$", "$$")


def _resources(order: Start, rules: PodRules) -> dict[str, dict[str, str]]:
    requests = {"cpu": f"{order.cpu_milli}m", "memory": f"{order.memory_mib}Mi"}
    limits = {}
    if order.most_cpu_milli is not None:
        limits["cpu"] = f"{order.most_cpu_milli}m"
    if order.most_memory_mib is not None:
        limits["memory"] = f"{order.most_memory_mib}Mi"
    if order.gpus:
        # Kubernetes needs GPUs in the limits, and the same number in the requests.
        requests[rules.gpu_resource] = limits[rules.gpu_resource] = str(len(order.gpus))
    return {"requests": requests, "limits": limits}


def _security(user: PodUser, rules: PodRules) -> dict[str, Any]:
    found: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if not rules.allow_root:
        found["runAsNonRoot"] = True
    if user.uid is not None:
        found["runAsUser"] = user.uid
        if user.gid is not None:
            found["runAsGroup"] = user.gid
        if user.groups:
            found["supplementalGroups"] = list(user.groups)
    return found


def _volumes(rules: PodRules) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for index, (path, claim) in enumerate(sorted(rules.claims.items())):
        volumes.append({"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"claim-{index}", "mountPath": path})
    if rules.shared_memory_mib:
        memory = {"medium": "Memory", "sizeLimit": f"{rules.shared_memory_mib}Mi"}
        volumes.append({"name": "shared-memory", "emptyDir": memory})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108 - a path in the Pod
    return volumes, mounts


def _is_below(path: str, roots: Mapping[str, str]) -> bool:
    """Return whether a path in the Pod is one of the paths at which claims are mounted, or is below one."""
    return any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots)
