"""Reads from a Pod whether its job waits, runs or has ended, and how the job ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from controller.engines.contract import PREEMPTED_THERE, ForeignJob, ForeignState, Outcome
from controller.engines.kubernetes.pod_request import CONTAINER, ENDED_NOTE, TAG_LABEL
from controller.engines.kubernetes.quantities import quantity

_LOST = {
    "Evicted": PREEMPTED_THERE,
    "Preempting": PREEMPTED_THERE,
    "Preempted": PREEMPTED_THERE,
    "NodeLost": "node_lost: Kubernetes lost the node",
    "NodeShutdown": "node_lost: the node was shut down",
    "Shutdown": "node_lost: the node was shut down",
    "Terminated": "node_lost: the node was shut down",
}
"""The `why` of the Outcome, by the reason of a failed Pod that Kubernetes has ended."""
_UNFIT = ("OutOf", "NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError", "Unexpected")
"""The beginnings of the reasons with which a kubelet refuses a Pod."""
_LAUNCH_FAILURES = frozenset(
    ("StartError", "ContainerCannotRun", "CreateContainerError", "RunContainerError")
)
_BUSY_REASONS = frozenset(("ContainerCreating", "PodInitializing"))
"""The reasons of containers that will start soon. They are not shown as the reason of a wait."""
MOST_REASON = 300


def pod_ref(pod: Mapping[str, Any]) -> str:
    """Return the name of the foreign job: namespace, name and uid of its Pod."""
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}/{meta['uid']}"


def foreign_job(pod: Mapping[str, Any], nodes: Collection[str] | None = None) -> ForeignJob:
    """Return the foreign job of a Pod. `nodes` are the names of all nodes; None if they are not known."""
    spec, tag = pod.get("spec") or {}, pod["metadata"]["labels"][TAG_LABEL]
    where = spec.get("nodeName") or pod["metadata"]["namespace"]
    if outcome_of(pod, nodes) is not None:
        return ForeignJob(tag, pod_ref(pod), ForeignState.ENDED, where)
    phase = (pod.get("status") or {}).get("phase", "Pending")
    if _container(pod).get("running") or phase in ("Running", "Unknown"):
        return ForeignJob(tag, pod_ref(pod), ForeignState.RUNNING, where)
    return ForeignJob(tag, pod_ref(pod), ForeignState.WAITING, where, waiting_reason(pod))


def waiting_reason(pod: Mapping[str, Any]) -> str:
    """Return why a Pod does not run, such as `ImagePullBackOff` or `Unschedulable`, with the explanation of
    Kubernetes; empty if Kubernetes gives no reason.
    """
    waiting = _container(pod).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if not reason or reason in _BUSY_REASONS:
        conditions = (pod.get("status") or {}).get("conditions") or ()
        placed: Mapping[str, str] = next(
            (each for each in conditions if each.get("type") == "PodScheduled"), {}
        )
        if placed.get("status") != "False":
            return ""
        reason, message = placed.get("reason", ""), placed.get("message", "")
    return f"{reason}: {message}"[:MOST_REASON] if message else str(reason)


def outcome_of(pod: Mapping[str, Any], nodes: Collection[str] | None = None) -> Outcome | None:
    """Return how the job of a Pod ended; None if there is no proof that the job has ended.

    1. The container of the job has terminated: its exit code, and the cause that Kubernetes names.
    2. The Pod has failed without an exit code: the reason of the Pod.
    3. The Pod was deleted before a node got it, or before its container started.
    4. The Pod was deleted, and its node is not in the cluster any more. A node that is only unreachable
       proves nothing, because the container may still run there.

    An end that Corral has not asked for, by a delete or an eviction, is `node_lost`: the job may run again.
    """
    meta, status = pod["metadata"], pod.get("status") or {}
    deleted = bool(meta.get("deletionTimestamp"))
    by_corral = ENDED_NOTE in (meta.get("annotations") or {})
    terminated = _container(pod).get("terminated")
    if terminated:
        return _terminated(pod, terminated, deleted and not by_corral)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _without_code(status)
    if not deleted:
        return None
    node = (pod.get("spec") or {}).get("nodeName")
    away = "" if by_corral else "node_lost: the Pod was deleted before it started"
    never_ran = meta.get("deletionGracePeriodSeconds") == 0 and not _container(pod).get("running")
    if not node or (never_ran and status.get("phase", "Pending") == "Pending"):
        return Outcome(why=away)
    if nodes is not None and node not in nodes:
        return Outcome(why="" if by_corral else f"node_lost: node {node} was removed from Kubernetes")
    return None


def _terminated(pod: Mapping[str, Any], ended: Mapping[str, Any], deleted: bool) -> Outcome:
    status, reason = pod.get("status") or {}, ended.get("reason", "")
    code = int(ended.get("exitCode", 0))
    # Take the signal from an exit code between 129 and 192: a shell or an init process exits with 128 plus
    # the signal that has ended the program.
    number = code - 128 if 128 < code < 193 else int(ended.get("signal") or 0)
    exit_code, by_signal = (None, number) if number else (code, None)
    if reason == "OOMKilled":
        return Outcome(signal=9, why=f"out_of_memory: it used more than {_memory_limit(pod)}")
    if status.get("reason") == "DeadlineExceeded":
        return Outcome(exit_code, by_signal, "time_limit")
    if reason in _LAUNCH_FAILURES:
        return Outcome(why=f"launch_failed: {_short(ended.get('message') or reason)}")
    lost = _lost_reason(status)
    if lost and code != 0:
        return Outcome(exit_code, by_signal, lost)
    if deleted and code != 0:
        return Outcome(exit_code, by_signal, f"{PREEMPTED_THERE}; the Pod was deleted")
    return Outcome(exit_code, by_signal)


def _without_code(status: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a Pod that has ended without a state of its container."""
    if status.get("phase") == "Succeeded":
        return Outcome(code=0)
    reason, message = str(status.get("reason") or ""), _short(status.get("message") or "")
    lost = _lost_reason(status)
    if lost:
        return Outcome(why=f"{lost}: {message}" if message else lost)
    if reason == "DeadlineExceeded":
        return Outcome(why="time_limit")
    if reason.startswith(_UNFIT):
        return Outcome(why=f"node_unfit: {reason}: {message}" if message else f"node_unfit: {reason}")
    return Outcome(why=f"supervisor_lost: the Pod failed without an exit code: {reason} {message}".rstrip())


def _lost_reason(status: Mapping[str, Any]) -> str:
    """Return the `why` of a Pod that Kubernetes has ended for its own reasons; empty for any other Pod."""
    lost = _LOST.get(str(status.get("reason") or ""), "")
    for each in status.get("conditions") or ():
        # Kubernetes 1.26 and later set this condition on Pods that they evict, preempt or delete.
        if not lost and each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            lost = PREEMPTED_THERE
    return lost


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the container of the job: a dict with the key running, waiting or terminated."""
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if each.get("name") == CONTAINER:
            state: Mapping[str, Any] = each.get("state") or {}
            return state
    return {}


def _memory_limit(pod: Mapping[str, Any]) -> str:
    for each in pod["spec"]["containers"]:
        limit = ((each.get("resources") or {}).get("limits") or {}).get("memory")
        if each["name"] == CONTAINER and limit:
            return f"{int(quantity(limit)) >> 20} MiB"
    return "the node had"


def _short(text: str) -> str:
    return " ".join(str(text).split())[:MOST_REASON]
