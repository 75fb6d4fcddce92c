"""Shows the nodes of Kubernetes as nodes of Corral, less the resources that other Pods use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.engines.contract import ForeignNode
from controller.engines.kubernetes.pod_request import Toleration
from controller.engines.kubernetes.quantities import PodResources, requests_of, resources_of
from wire.agent.reports import GpuFacts, NodeFacts

POOL = "pods"
"""The name of the one node that stands for all nodes of Kubernetes if place = "scheduler"."""
PRODUCT_LABEL, MEMORY_LABEL = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""The labels with which NVIDIA's GPU feature discovery names the model and the memory (MiB) of the GPUs."""


@dataclass(frozen=True, slots=True)
class KubeNode:
    """One node of Kubernetes. `why` is the reason for which it takes no Pods of the engine; empty if it takes
    them.
    """

    name: str
    resources: PodResources
    labels: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True, slots=True)
class OtherPod:
    """What a Pod requests on its node. `cluster` is its label with the cluster of Corral; empty for a Pod
    that Corral did not make.
    """

    node: str
    resources: PodResources
    cluster: str


def kube_node(node: Mapping[str, Any], gpu_resource: str, tolerations: Sequence[Toleration]) -> KubeNode:
    """Return the part of a node object that Corral needs."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    why = ""
    ready: Mapping[str, str] = next(
        (each for each in status.get("conditions") or () if each.get("type") == "Ready"), {}
    )
    bad = [
        each
        for each in spec.get("taints") or ()
        if each.get("effect") in ("NoSchedule", "NoExecute")
        and not any(ok.allows(each) for ok in tolerations)
    ]
    if meta.get("deletionTimestamp"):
        why = "it is being deleted in Kubernetes"
    elif ready.get("status") != "True":
        why = f"it is not ready in Kubernetes: {ready.get('reason') or 'no status'}"
    elif spec.get("unschedulable"):
        why = "it is cordoned in Kubernetes"
    elif bad:
        why = "it has the taint " + ", ".join(sorted(_taint_text(each) for each in bad))
    return KubeNode(
        meta["name"],
        resources_of(status.get("allocatable") or {}, gpu_resource),
        meta.get("labels") or {},
        why,
    )


def other_pod(pod: Mapping[str, Any], gpu_resource: str, cluster_label: str) -> OtherPod:
    """Return the part of a Pod that Corral needs to count what it uses."""
    labels = pod["metadata"].get("labels") or {}
    node = (pod.get("spec") or {}).get("nodeName", "")
    return OtherPod(node, requests_of(pod, gpu_resource), labels.get(cluster_label, ""))


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The options of the engine about nodes, and its name. The UUIDs of GPUs begin with the name."""

    engine: str
    place: str = "node"
    gpu_model: str = "GPU"
    gpu_memory_mib: int = 0


def foreign_nodes(
    nodes: Iterable[KubeNode],
    used: Mapping[str, PodResources],
    held: Mapping[str, Collection[str]],
    settings: NodeSettings,
) -> tuple[ForeignNode, ...]:
    """Return the nodes for Corral: each node, or with place = "scheduler" one node with the resources of all.

    1. The resources of a node are its allocatable resources minus `used`: what Pods that are not Corral's
       request there.
    2. Kubernetes does not name single GPUs before a Pod runs. So the UUIDs are made from the name of the node
       and a number, and Corral uses them only to count.
    3. If these Pods use n GPUs, n GPUs that no Pod of Corral holds are left out, from the highest number
       down. `held` has the GPUs of Corral's Pods, by node.

    Example: node a has 4 GPUs, a job holds a-3, and another Pod uses one GPU. The node has a-0, a-1 and a-3.
    """
    found = sorted(nodes, key=lambda each: each.name)
    if settings.place == "node":
        return tuple(
            ForeignNode(
                each.name,
                _facts(each.name, [each], used, held, settings),
                not each.why,
                each.why,
                temporary=True,
            )
            for each in found
        )
    usable = [each for each in found if not each.why]
    why = "" if usable else "; ".join(f"{each.name}: {each.why}" for each in found) or "there are no nodes"
    facts = _facts(POOL, usable or found, used, held, settings)
    return (ForeignNode(POOL, facts, bool(usable), why[:300]),)


def _facts(
    name: str,
    nodes: Sequence[KubeNode],
    used: Mapping[str, PodResources],
    held: Mapping[str, Collection[str]],
    settings: NodeSettings,
) -> NodeFacts:
    free = sum((each.resources.minus(used.get(each.name, PodResources())) for each in nodes), PodResources())
    models = [each.labels for each in nodes for _ in range(each.resources.gpus)]
    kept = _kept_gpus(
        [f"{settings.engine}-{name}-{index}" for index in range(len(models))], free.gpus, held.get(name, ())
    )
    gpus = tuple(
        GpuFacts(index, uuid, _model(labels, settings), _memory_mib(labels, settings))
        for index, (uuid, labels) in enumerate(
            zip((f"{settings.engine}-{name}-{index}" for index in range(len(models))), models, strict=True)
        )
        if uuid in kept
    )
    labels = {} if settings.place != "node" else dict(nodes[0].labels)
    return NodeFacts(
        free.cpu_milli,
        free.memory_mib,
        gpus,
        labels=labels,
        handling={"jobs": "run as Pods of Kubernetes"},
        runtime="Kubernetes",
    )


def _kept_gpus(uuids: Sequence[str], count: int, held: Collection[str]) -> set[str]:
    """Return `count` of the GPUs: first those that Corral's Pods hold, then those with the lowest numbers. If
    Corral's Pods hold more than `count`, return all that they hold.
    """
    order = sorted(range(len(uuids)), key=lambda index: (uuids[index] not in held, index))
    least = sum(uuid in held for uuid in uuids)
    return {uuids[index] for index in order[: max(count, least)]}


def _model(labels: Mapping[str, str], settings: NodeSettings) -> str:
    return labels.get(PRODUCT_LABEL) or settings.gpu_model


def _memory_mib(labels: Mapping[str, str], settings: NodeSettings) -> int:
    text = labels.get(MEMORY_LABEL, "")
    return int(text) if text.isdigit() else settings.gpu_memory_mib


def _taint_text(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
