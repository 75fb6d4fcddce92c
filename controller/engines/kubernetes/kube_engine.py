"""Runs jobs in Pods of Kubernetes, through the API server."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineScope,
    EngineUnavailable,
    ExecutionEngine,
    ForeignLimit,
    ForeignNode,
    ForeignQuota,
    Outcome,
    Ref,
    Seen,
    Task,
)
from controller.engines.kubernetes.kept_logs import KeptLogs
from controller.engines.kubernetes.kube_access import find_access
from controller.engines.kubernetes.kube_api import MERGE_PATCH, KubeApi, KubeRefusal
from controller.engines.kubernetes.kube_nodes import (
    POOL,
    KubeNode,
    OtherPod,
    foreign_nodes,
    kube_node,
    other_pod,
)
from controller.engines.kubernetes.pod_request import (
    CLUSTER_LABEL,
    CONTAINER,
    ENDED_NOTE,
    FINALIZER,
    GPUS_NOTE,
    TAG_LABEL,
    PodPlace,
    PodProblem,
    PodUser,
    cluster_label,
    manifest_text,
    pod_manifest,
)
from controller.engines.kubernetes.pod_state import foreign_job, outcome_of, pod_ref
from controller.engines.kubernetes.quantities import PodResources, quantity
from controller.engines.kubernetes.resource_quotas import quota_of
from controller.engines.kubernetes.watched_list import WatchedList

if TYPE_CHECKING:
    from controller.engines.kubernetes.kube_options import KubernetesEngineType

_ACTIVE = "status.phase!=Succeeded,status.phase!=Failed"
START_PAUSE_S = 0.5
"""Seconds between two tries to read the output of a Pod whose container has not started."""
_FOR_NOW = ("exceeded quota", "is being terminated", "try again later")
"""Parts of the messages of refusals after which the same Pod may be accepted later."""


class KubernetesEngine(ExecutionEngine):
    """Runs each attempt in one Pod, whose name is the tag.

    1. look() reads the Pods with the label of this cluster, the nodes, and what other Pods request. All three
       lists are kept up to date by watches: see WatchedList.
    2. ask() creates the Pod. The API server refuses a second Pod of the same name (409), so a repeated ask()
       finds the first one. The Pod names the node that Corral has chosen.
    3. end() marks the Pod as ended by Corral, begins to store its output, and deletes it with the grace time.
       The uid is a precondition, so another Pod of the same name is never deleted.
    4. The finalizer keeps a deleted Pod, with the exit code of its container. proof() reads it, and forget()
       removes the finalizer after Corral has stored the end.

    Invariant: only Pods with the label of this cluster are changed, and each change names the uid of the Pod.

    Cost: no request for a look while the watches are current (see WatchedList); four requests for each job,
    and one for its output.
    """

    caps = EngineCaps(supports=frozenset(("image",)), logs=True, gangs=False)

    def __init__(self, options: KubernetesEngineType, scope: EngineScope) -> None:
        self._options, self._scope = options, scope
        self._api = KubeApi(lambda: find_access(options.kubeconfig, options.context), scope.timeout_s)
        self._kept = KeptLogs(Path(scope.directory) / "output", lambda ref: self._output(ref, follow=True))
        self._label = cluster_label(scope.tag_prefix)
        self._watch_tasks: set[asyncio.Task[None]] = set()
        gpu, rules = options.gpu_resource, options.rules
        self._pods: WatchedList[Mapping[str, Any]] = WatchedList(
            self._api,
            self._pods_path,
            {"labelSelector": f"{CLUSTER_LABEL}={self._label}"},
            lambda pod: pod,
            self._pod_changed,
        )
        self._nodes: WatchedList[KubeNode] = WatchedList(
            self._api,
            "/api/v1/nodes",
            {},
            lambda node: kube_node(node, gpu, rules.tolerations),
        )
        self._others: WatchedList[OtherPod] = WatchedList(
            self._api,
            "/api/v1/pods",
            {"fieldSelector": _ACTIVE},
            lambda pod: other_pod(pod, gpu, CLUSTER_LABEL),
        )
        self._names: frozenset[str] | None = None
        """The names of all nodes in the last look; None before the first look."""
        self._known: dict[str, KubeNode] = {}
        """The nodes of the last look, and earlier nodes that Pods of Corral still name."""

    @property
    def _pods_path(self) -> str:
        return f"/api/v1/namespaces/{self._options.namespace}/pods"

    async def look(self) -> Seen:
        try:
            pods, pods_age = await self._pods.current()
            nodes, nodes_age = await self._nodes.current()
            others: list[OtherPod] = []
            others_age = 0.0
            if self._options.count_others:
                others, others_age = await self._others.current()
        except KubeRefusal as refusal:
            raise EngineUnavailable(refusal.problem) from None
        self._names = frozenset(each.name for each in nodes)
        jobs = tuple(foreign_job(pod, self._names) for pod in pods if self._is_own(pod))
        chosen = [each for each in nodes if self._options.nodes.items() <= each.labels.items()]
        return Seen(
            True, jobs, self._foreign_nodes(pods, chosen, others), max(pods_age, nodes_age, others_age)
        )

    def _foreign_nodes(
        self, pods: list[Mapping[str, Any]], nodes: list[KubeNode], others: list[OtherPod]
    ) -> tuple[ForeignNode, ...]:
        used: dict[str, PodResources] = {}
        for each in others:
            if each.cluster != self._label:
                used[each.node] = used.get(each.node, PodResources()) + each.resources
        if self._options.place == "node":
            nodes = [*nodes, *self._removed_nodes(pods, nodes)]
        held: dict[str, set[str]] = {}
        for pod in pods:
            if outcome_of(pod, self._names) is None:
                name = (pod.get("spec") or {}).get("nodeName", "") if self._options.place == "node" else POOL
                noted = (pod["metadata"].get("annotations") or {}).get(GPUS_NOTE, "")
                held.setdefault(name, set()).update(filter(None, noted.split(",")))
        return foreign_nodes(nodes, used, held, self._options.node_settings(self._scope.name))

    def _removed_nodes(self, pods: list[Mapping[str, Any]], nodes: list[KubeNode]) -> list[KubeNode]:
        """Return the nodes that were removed from Kubernetes, or have lost the labels that the engine
        selects, but that a Pod of Corral still names. Corral continues to list them, because an end can only
        be reported for a node that Corral is connected to.
        """
        known, self._known = self._known, {each.name: each for each in nodes}
        found = []
        for name in {(pod.get("spec") or {}).get("nodeName", "") for pod in pods} - {"", *self._known}:
            before = known.get(name, KubeNode(name, PodResources(), {}))
            self._known[name] = replace(before, why="it was removed from Kubernetes, or has lost its labels")
            found.append(self._known[name])
        return found

    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        body = await asyncio.to_thread(self._manifest, task, tag)
        try:
            pod = await self._api.call("POST", self._pods_path, body=body)
        except KubeRefusal as refusal:
            if refusal.status != 409:
                raise self._refused(refusal) from None
            pod = await self._get(self._options.namespace, tag)
            if pod is None or not self._is_own(pod):
                raise AskRefused(f"another program has made the Pod {tag}", lasting=pod is not None) from None
        self._pods.put(pod)
        return pod_ref(pod)

    def _refused(self, refusal: KubeRefusal) -> Exception:
        """Return the exception for a Pod that the API server refuses. A quota is a reason to wait, a missing
        right or namespace is a failure of the engine, and any other refusal is lasting.
        """
        if any(part in refusal.message for part in _FOR_NOW):
            return AskRefused(refusal.message)
        if refusal.is_missing_right or refusal.status == 404:
            return EngineUnavailable(refusal.problem)
        return AskRefused(f"the API server refuses the Pod: {refusal.message}", lasting=True)

    async def end(self, ref: Ref, grace_s: float) -> None:
        namespace, name, uid = ref.split("/")
        mark = {"metadata": {"uid": uid, "annotations": {ENDED_NOTE: "corral"}}}
        try:
            pod = await self._api.call(
                "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body=mark, content_type=MERGE_PATCH
            )
            if not self._is_own(pod):
                return
            if outcome_of(pod, self._names) is None:
                await self._kept.keep(ref)
            await self._delete(ref, max(1, round(grace_s)))
        except KubeRefusal as refusal:
            # 404: the Pod is gone. 409: another Pod has this name, so the Pod of `ref` is gone.
            if refusal.status not in (404, 409):
                raise EngineUnavailable(refusal.problem) from None

    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        namespace, name, uid = ref.split("/")
        pod = await self._get(namespace, name)
        if pod is None or pod["metadata"]["uid"] != uid or not self._is_own(pod, tag):
            return None
        return outcome_of(pod, self._names)

    async def forget(self, ref: Ref, tag: str) -> None:
        namespace, name, uid = ref.split("/")
        pod = await self._get(namespace, name)
        if pod is not None and pod["metadata"]["uid"] == uid and self._is_own(pod, tag):
            try:
                if not _is_deleted(pod):
                    pod = await self._delete(ref, 0)
                if pod.get("kind") == "Pod":
                    await self._release(namespace, name, pod)
            except KubeRefusal as refusal:
                if refusal.status != 404:
                    raise EngineUnavailable(refusal.problem) from None
        self._pods.remove(uid)
        await self._kept.forget(ref)

    async def _release(self, namespace: str, name: str, pod: Mapping[str, Any]) -> None:
        """Remove Corral's finalizer from a Pod, and no other finalizer."""
        meta = pod["metadata"]
        left = [each for each in meta.get("finalizers") or () if each != FINALIZER]
        # The version is a precondition, because another program may change the finalizers at the same time.
        body = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "finalizers": left}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        await self._api.call("PATCH", path, body={"metadata": body}, content_type=MERGE_PATCH)

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        if stream != "stdout":
            return  # because Kubernetes gives stdout and stderr as one text
        source = self._kept.read(ref) if self._kept.has(ref) else self._output(ref, follow=follow)
        async for piece in source:
            if piece:
                yield piece

    async def _output(self, ref: Ref, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield the output of a Pod from the API server. With `follow`, wait until its container starts, and
        continue until it has ended.
        """
        namespace, name, uid = ref.split("/")
        query = {"container": CONTAINER, "follow": "true" if follow else "false"}
        while True:
            pod = await self._get(namespace, name)
            if pod is None or pod["metadata"]["uid"] != uid:
                return
            try:
                path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
                async for piece in self._api.stream(path, query):
                    yield piece
                return
            except KubeRefusal as refusal:
                # 400: the container has not started. 404: the node has removed the container.
                if refusal.status not in (400, 404):
                    raise EngineUnavailable(refusal.problem) from None
            if not follow or outcome_of(pod, self._names) is not None or _is_deleted(pod):
                return
            await asyncio.sleep(START_PAUSE_S)

    async def limits(self) -> tuple[ForeignLimit, ...]:
        """Return the hard limits of all resource quotas of the namespace, with the amounts in use."""
        path = f"/api/v1/namespaces/{self._options.namespace}/resourcequotas"
        try:
            found, _ = await self._api.list_all(path, {})
        except KubeRefusal as refusal:
            raise EngineUnavailable(refusal.problem) from None
        return tuple(
            ForeignLimit(
                f"{each['metadata']['name']}: {name}",
                float(quantity(((each.get("status") or {}).get("used") or {}).get(name, 0))),
                float(quantity(hard)),
            )
            for each in found
            for name, hard in sorted(((each.get("status") or {}).get("hard") or {}).items())
        )

    async def quota(self, name: str) -> ForeignQuota:
        """Return the quota of a namespace."""
        try:
            found, _ = await self._api.list_all(f"/api/v1/namespaces/{name}/resourcequotas", {})
        except KubeRefusal as refusal:
            raise EngineUnavailable(refusal.problem) from None
        return quota_of(found, self._options.gpu_resource)

    def script(self, task: Task, tag: str) -> str:
        """Return the Pod that ask() creates. The user of the Pod is left out if the option run_as is "user",
        because ask() looks up the uid on the controller's machine.
        """
        fixed = PodUser() if self._options.run_as == "user" else self._user(task.order.user)
        return manifest_text(self._pod(task, tag, fixed))

    async def close(self) -> None:
        for task in self._watch_tasks:
            task.cancel()
        await asyncio.gather(*self._watch_tasks, return_exceptions=True)
        for each in (self._pods, self._nodes, self._others):
            await each.close()
        await self._kept.close()
        await self._api.close()

    def _manifest(self, task: Task, tag: str) -> dict[str, Any]:
        """Return the Pod of a task. Looks up the job's user in the operating system, which may take time."""
        return self._pod(task, tag, self._user(task.order.user))

    def _pod(self, task: Task, tag: str, user: PodUser) -> dict[str, Any]:
        options = self._options
        place = PodPlace(options.namespace, task.node if options.place == "node" else "", options.nodes)
        try:
            return pod_manifest(task.order, tag, self._scope.tag_prefix, place, user, options.rules)
        except PodProblem as problem:
            raise AskRefused(str(problem), lasting=True) from None

    def _user(self, name: str) -> PodUser:
        run_as = self._options.run_as
        if run_as == "image":
            return PodUser()
        if run_as != "user":
            uid, _, gid = run_as.partition(":")
            return PodUser(int(uid), int(gid) if gid else None)
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise AskRefused(f"the controller's machine has no user {name!r}", lasting=True) from None
        groups = [each for each in os.getgrouplist(name, found.pw_gid) if each != found.pw_gid]
        return PodUser(found.pw_uid, found.pw_gid, groups)

    def _pod_changed(self, pod: Mapping[str, Any]) -> None:
        """Begin to store the output of a Pod that another program deletes while it runs."""
        if not _is_deleted(pod) or not self._is_own(pod):
            return
        if outcome_of(pod, self._names) is None and not self._kept.has(pod_ref(pod)):
            task = asyncio.get_running_loop().create_task(self._kept.keep(pod_ref(pod)))
            self._watch_tasks.add(task)
            task.add_done_callback(self._watch_tasks.discard)

    def _is_own(self, pod: Mapping[str, Any], tag: str = "") -> bool:
        labels = pod["metadata"].get("labels") or {}
        own = labels.get(TAG_LABEL, "")
        if labels.get(CLUSTER_LABEL) != self._label:
            return False
        return bool(own == tag if tag else own.startswith(self._scope.tag_prefix))

    async def _get(self, namespace: str, name: str) -> Any:
        """Return a Pod; None if there is none of this name."""
        try:
            return await self._api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except KubeRefusal as refusal:
            if refusal.status == 404:
                return None
            raise EngineUnavailable(refusal.problem) from None

    async def _delete(self, ref: Ref, grace_s: int) -> Any:
        """Delete a Pod, and return the answer: the Pod if it still exists, because it has a finalizer."""
        namespace, name, uid = ref.split("/")
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": grace_s,
            "preconditions": {"uid": uid},
        }
        return await self._api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body=body)


def _is_deleted(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
