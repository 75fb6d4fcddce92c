"""The Pod of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.engines.kubernetes.kube_options import KubernetesEngineType
from controller.engines.kubernetes.pod_request import (
    FINALIZER,
    PodPlace,
    PodProblem,
    PodRules,
    PodUser,
    Toleration,
    pod_manifest,
)
from wire.agent.orders import GpuHold, Start

TAG = "corral-0f3a9c112233-7-2-0"
PREFIX = "corral-0f3a9c112233-"
ORDER = Start(
    7,
    2,
    ("sh", "-c", "echo $$ $(HOME)"),
    "ada",
    1_500,
    2_048,
    gpus=(GpuHold("k-a-0", 1_000), GpuHold("k-a-1", 1_000)),
    env={"B": "$(A)", "A": "1 x"},
    image="torch:2",
    workdir="/data/run",
    grace_s=12.5,
)
RULES = PodRules(
    tolerations=(Toleration.parsed("nvidia.com/gpu"), Toleration.parsed("team=ml:NoSchedule")),
    claims={"/data": "training"},
    priority_class="batch",
    image_pull_secrets=("registry",),
    shared_memory_mib=64,
    labels={"team": "ml"},
)


def made(
    order: Start = ORDER,
    rules: PodRules = RULES,
    place: PodPlace = PodPlace("jobs", "gpu01"),  # noqa: B008 - a frozen value
    user: PodUser = PodUser(1_000, 100, (4, 20)),  # noqa: B008 - a frozen value
) -> dict[str, object]:
    return pod_manifest(order, TAG, PREFIX, place, user, rules)


def test_the_whole_pod() -> None:
    assert made() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": TAG,
            "namespace": "jobs",
            "labels": {"corral/tag": TAG, "corral/cluster": "corral-0f3a9c112233", "team": "ml"},
            "annotations": {"corral/user": "ada", "corral/job": "7", "corral/gpus": "k-a-0,k-a-1"},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 13,
            "nodeName": "gpu01",
            "priorityClassName": "batch",
            "imagePullSecrets": [{"name": "registry"}],
            "securityContext": {
                "seccompProfile": {"type": "RuntimeDefault"},
                "runAsNonRoot": True,
                "runAsUser": 1_000,
                "runAsGroup": 100,
                "supplementalGroups": [4, 20],
            },
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists"},
                {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
            ],
            "volumes": [
                {"name": "claim-0", "persistentVolumeClaim": {"claimName": "training"}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            ],
            "containers": [
                {
                    "name": "job",
                    "image": "torch:2",
                    "imagePullPolicy": "IfNotPresent",
                    # Kubernetes turns $$ into $ and would replace $(HOME).
                    "command": ["sh", "-c", "echo $$$$ $$(HOME)"],
                    "env": [{"name": "A", "value": "1 x"}, {"name": "B", "value": "$$(A)"}],
                    "workingDir": "/data/run",
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": "2"},
                        "limits": {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": "2"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [
                        {"name": "claim-0", "mountPath": "/data"},
                        {"name": "shared-memory", "mountPath": "/dev/shm"},
                    ],
                }
            ],
        },
    }


def test_kubernetes_chooses_the_node_by_labels() -> None:
    spec = made(place=PodPlace("jobs", "", {"pool": "a100"}))["spec"]
    assert isinstance(spec, dict)
    assert "nodeName" not in spec
    assert spec["nodeSelector"] == {"pool": "a100"}


def test_a_best_effort_job_has_requests_and_no_limits() -> None:
    spec = made(replace(ORDER, best_effort=True, gpus=()))["spec"]
    assert isinstance(spec, dict)
    resources = spec["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "1500m", "memory": "2048Mi"}, "limits": {}}


@pytest.mark.parametrize(
    ("order", "user", "why"),
    [
        (replace(ORDER, image=""), PodUser(1_000), "needs an image"),
        (replace(ORDER, gpus=(GpuHold("k-a-0", 500),)), PodUser(1_000), "part of a GPU"),
        (ORDER, PodUser(0, 0), "as root"),
    ],
)
def test_jobs_that_no_pod_can_run(order: Start, user: PodUser, why: str) -> None:
    with pytest.raises(PodProblem, match=why):
        made(order, user=user)


def test_root_needs_a_permission_of_the_operator() -> None:
    spec = made(rules=replace(RULES, allow_root=True), user=PodUser(0))["spec"]
    assert isinstance(spec, dict)
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 0}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"run_as": "0:5"}, "allow_root"),
        ({"run_as": "ada"}, "run_as"),
        ({"place": "pod"}, "place"),
        ({"tolerations": ("gpu:Never",)}, "tolerations"),
        ({"claims": {"data": "x"}}, "claims"),
        ({"namespace": "A b"}, "namespace"),
        ({"image_pull_policy": "never"}, "image_pull_policy"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        KubernetesEngineType(**options)  # type: ignore[arg-type]
