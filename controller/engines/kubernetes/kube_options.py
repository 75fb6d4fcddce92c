"""The options of `[engines.NAME]` for an engine of the type `kubernetes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from controller.engines.contract import EngineScope, ExecutionEngine
from controller.engines.kubernetes.kube_engine import KubernetesEngine
from controller.engines.kubernetes.kube_nodes import NodeSettings
from controller.engines.kubernetes.pod_request import PodRules, Toleration

_RUN_AS = re.compile(r"user|image|\d{1,10}(:\d{1,10})?")
_LABEL_KEY = re.compile(r"([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class KubernetesEngineType:
    """The options of the engine.

    - `kubeconfig` and `context` name the cluster. Without them the engine uses the service account of its
      Pod, or the file that KUBECONFIG names, or ~/.kube/config.
    - `namespace` is the namespace of all Pods. It must exist.
    - `place` says which scheduler chooses the node of a job: "node" for Corral, "scheduler" for Kubernetes.
    - `nodes` are the labels of the nodes that Corral may use; an empty table means all nodes.
    - `run_as` is the user in the Pods: "user" for the uid of the job's user, "image" for the user of the
      image, or a uid with an optional gid, such as "1000:1000".
    - `pod_labels` are further labels of all Pods. The key `labels` of every engine is for nodes in Corral.
    - `count_others` says whether the requests of Pods that are not Corral's reduce the resources of a node.
      If it is false, the engine needs no right to list the Pods of all namespaces.
    """

    name: ClassVar[str] = "kubernetes"

    kubeconfig: str = ""
    context: str = ""
    namespace: str = "corral"
    place: str = "node"
    nodes: Mapping[str, str] = field(default_factory=dict)
    count_others: bool = True
    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    run_as: str = "user"
    allow_root: bool = False
    service_account: str = ""
    priority_class: str = ""
    runtime_class: str = ""
    tolerations: tuple[str, ...] = ("nvidia.com/gpu",)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    shared_memory_mib: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    gpu_model: str = "GPU"
    gpu_memory_mib: int = 0

    def __post_init__(self) -> None:
        if self.place not in ("node", "scheduler"):
            raise ValueError(f'place: {self.place!r} is not "node" or "scheduler"')
        if self.image_pull_policy not in ("Always", "IfNotPresent", "Never"):
            raise ValueError(
                f'image_pull_policy: {self.image_pull_policy!r} is not "Always", "IfNotPresent" or "Never"'
            )
        if not _RUN_AS.fullmatch(self.run_as):
            raise ValueError(f'run_as: {self.run_as!r} is not "user", "image" or a uid, such as "1000:1000"')
        if self.run_as.split(":")[0] == "0" and not self.allow_root:
            raise ValueError("run_as: Pods as root need allow_root = true")
        if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", self.namespace):
            raise ValueError(f"namespace: {self.namespace!r} is not a name of a namespace")
        if any(not path.startswith("/") for path in self.claims):
            raise ValueError('claims: write absolute paths, such as { "/data" = "training-data" }')
        if any(not _LABEL_KEY.fullmatch(key) for key in (*self.nodes, *self.pod_labels)):
            raise ValueError("nodes, pod_labels: a key is not a label of Kubernetes")
        for each in self.tolerations:
            Toleration.parsed(each)

    def connect(self, scope: EngineScope) -> ExecutionEngine:
        """Return the engine. It connects to the API server with its first request."""
        return KubernetesEngine(self, scope)

    @property
    def rules(self) -> PodRules:
        return PodRules(
            image=self.image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secrets,
            service_account=self.service_account,
            priority_class=self.priority_class,
            runtime_class=self.runtime_class,
            gpu_resource=self.gpu_resource,
            tolerations=tuple(Toleration.parsed(each) for each in self.tolerations),
            claims=self.claims,
            shared_memory_mib=self.shared_memory_mib,
            labels=self.pod_labels,
            allow_root=self.allow_root,
        )

    def node_settings(self, engine: str) -> NodeSettings:
        return NodeSettings(engine, self.place, self.gpu_model, self.gpu_memory_mib)
