"""The states and outcomes of jobs, read from Pods."""

from __future__ import annotations

from typing import Any

import pytest

from controller.engines.contract import PREEMPTED_THERE, ForeignState, Outcome
from controller.engines.kubernetes.pod_state import foreign_job, outcome_of

TAG = "corral-0f3a9c112233-7-2-0"


def pod(
    phase: str = "Running",
    state: dict[str, Any] | None = None,
    *,
    node: str = "n1",
    meta: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    statuses = [] if state is None else [{"name": "job", "state": state}]
    sidecar = {"name": "proxy", "state": {"running": {}}}
    return {
        "metadata": {
            "name": TAG,
            "namespace": "jobs",
            "uid": "u-1",
            "labels": {"corral/tag": TAG},
            **(meta or {}),
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "job", "resources": {"limits": {"memory": "64Mi"}}}],
        },
        "status": {"phase": phase, "containerStatuses": [sidecar, *statuses], **status},
    }


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
GONE = {**DELETED, "deletionGracePeriodSeconds": 0}
BY_CORRAL = {"annotations": {"corral/ended-by": "corral"}}
UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
]


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (pod("Succeeded", ended(0)), Outcome(code=0)),
        (pod("Failed", ended(3)), Outcome(code=3)),
        (pod("Failed", ended(137)), Outcome(signal=9)),
        # A sidecar still runs, but the job has ended.
        (pod("Running", ended(0)), Outcome(code=0)),
        (
            pod("Failed", ended(137, reason="OOMKilled")),
            Outcome(signal=9, why="out_of_memory: it used more than 64 MiB"),
        ),
        (pod("Failed", ended(143), reason="DeadlineExceeded"), Outcome(signal=15, why="time_limit")),
        (
            pod("Failed", ended(128, reason="StartError", message="no such file")),
            Outcome(why="launch_failed: no such file"),
        ),
        (
            pod("Failed", reason="Evicted", message="memory was low"),
            Outcome(why=f"{PREEMPTED_THERE}: memory was low"),
        ),
        (pod("Failed", ended(137), reason="Evicted"), Outcome(signal=9, why=PREEMPTED_THERE)),
        (
            pod("Failed", ended(143), conditions=[{"type": "DisruptionTarget", "status": "True"}]),
            Outcome(signal=15, why=PREEMPTED_THERE),
        ),
        # The program has ended by itself before the eviction.
        (pod("Failed", ended(0), reason="Evicted"), Outcome(code=0)),
        (
            pod("Failed", reason="OutOfcpu", message="no cpu"),
            Outcome(why="node_unfit: OutOfcpu: no cpu"),
        ),
        (
            pod("Failed", ended(143), meta=DELETED),
            Outcome(signal=15, why=f"{PREEMPTED_THERE}; the Pod was deleted"),
        ),
        (pod("Failed", ended(143), meta={**DELETED, **BY_CORRAL}), Outcome(signal=15)),
        (pod("Pending", node="", meta={**GONE, **BY_CORRAL}), Outcome()),
        (
            pod("Pending", {"waiting": {}}, meta=GONE),
            Outcome(why="node_lost: the Pod was deleted before it started"),
        ),
        (
            pod("Running", {"running": {}}, node="removed", meta=DELETED),
            Outcome(why="node_lost: node removed was removed from Kubernetes"),
        ),
    ],
)
def test_ends(found: dict[str, Any], outcome: Outcome) -> None:
    assert outcome_of(found, {"n1"}) == outcome
    assert foreign_job(found, {"n1"}).state is ForeignState.ENDED


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (pod("Running", {"running": {}}), ForeignState.RUNNING, ""),
        # The container may still run on a node that is only unreachable, or in its grace.
        (pod("Running", {"running": {}}, meta=GONE), ForeignState.RUNNING, ""),
        (pod("Unknown"), ForeignState.RUNNING, ""),
        (pod("Running", node="removed"), ForeignState.RUNNING, ""),
        (pod("Pending", node=""), ForeignState.WAITING, ""),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), ForeignState.WAITING, ""),
        (
            pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no host"}}),
            ForeignState.WAITING,
            "ImagePullBackOff: no host",
        ),
        (
            pod("Pending", node="", conditions=UNSCHEDULABLE),
            ForeignState.WAITING,
            "Unschedulable: 0/3 nodes",
        ),
    ],
)
def test_states_before_the_end(found: dict[str, Any], state: ForeignState, reason: str) -> None:
    job = foreign_job(found, {"n1"})
    assert (job.state, job.reason, job.ref) == (state, reason, f"jobs/{TAG}/u-1")
    assert outcome_of(found, {"n1"}) is None


def test_a_node_proves_nothing_before_the_nodes_are_known() -> None:
    assert outcome_of(pod("Running", {"running": {}}, node="removed", meta=DELETED), None) is None
