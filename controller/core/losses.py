"""What becomes of jobs on a node that is not heard of: they wait for it, or start anew once that is safe.

Safe means: their supervisors have ended them. A supervisor counts its lease from a moment at which the
controller has heard of its host, so it is over at most `lease_s` after the controller heard of it last,
whatever the network has held back since. Ending takes the job's grace at most; the margin is for clocks that
run differently, and for what the kernel takes to end a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.core.events import JobEnded, JobRequeued
from controller.core.jobs import Job
from controller.core.nodes import Node
from wire.conditions import OnNodeLost
from wire.spec import JobSpec
from wire.text import duration
from wire.words import Reason

if TYPE_CHECKING:  # what the configuration says is part of it
    from controller.core.state import State

ANEW = (OnNodeLost.REQUEUE, OnNodeLost.MANUAL)


@dataclass(frozen=True, slots=True)
class Losses:
    """What the configuration says; jobs may say otherwise for themselves."""

    policy: OnNodeLost = OnNodeLost.WAIT
    lease_s: float = 300.0
    margin_s: float = 30.0
    down_after_s: float = 60.0


NO_LOSSES = Losses()


def with_lease(losses: Losses, spec: JobSpec) -> JobSpec:
    """The job with what holds for it written down: a later configuration changes nothing for it."""
    policy = spec.on_node_lost or losses.policy
    lease_s = losses.lease_s if policy is OnNodeLost.REQUEUE else None
    if policy is OnNodeLost.WAIT and spec.on_node_lost is None and spec.lease_s is None:
        return spec
    return replace(spec, on_node_lost=policy, lease_s=lease_s)


def lost_jobs(state: State, node: Node, losses: Losses, silent_s: float) -> Iterator[Job]:
    """The jobs on a node that certainly do not run there any more."""
    for number in sorted(node.held):
        job = state.jobs[number]
        safe_after = safe_after_s(job, losses)
        if safe_after is not None and silent_s >= safe_after:
            yield job


def safe_after_s(job: Job, losses: Losses) -> float | None:
    """After so much silence the job is certainly over; None: silence says nothing about it."""
    lease_s = job.spec.lease_s
    return None if lease_s is None else lease_s + job.spec.grace_s + losses.margin_s


def overdue(state: State, node: Node, losses: Losses, silent_s: float) -> bool:
    """Is there anything to do about a node that has been silent for so long?"""
    if node.up:
        return False
    return (not node.down and silent_s >= losses.down_after_s) or any(
        True for _ in lost_jobs(state, node, losses, silent_s)
    )


def anew(job: Job, ended: JobEnded) -> JobRequeued | None:
    """The requeue that takes the place of this outcome, if the job was lost with a node and may run again."""
    if ended.reason is not Reason.NODE_LOST or job.spec.on_node_lost not in ANEW:
        return None
    if job.stopping not in (None, Reason.MEMBER_FAILED, Reason.PREEMPTED, Reason.EVICTED):
        return None  # somebody wanted its end, and not only that it makes room
    limit = job.spec.restart.limit  # it counts like every other restart of the job
    if limit is not None and job.wait.restarts >= limit:
        return None
    return JobRequeued(job.id, ended.at, job.attempt, Reason.NODE_LOST, ended.detail, restart=True)


def told(job: Job, node: Node) -> str:
    """What a job on a node that is not heard of waits for."""
    if job.spec.lease_s is not None:
        return f"starts anew {duration(job.spec.lease_s)} after it was lost, if {node.name} stays silent"
    if job.spec.on_node_lost is OnNodeLost.MANUAL:
        return f"waits for {node.name}, or for 'corral nodes lost {node.name}'"
    return f"waits for {node.name}"
