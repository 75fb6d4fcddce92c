"""Decides when a silent node (one without messages to the controller) is DOWN, and when its jobs are lost.

A job counts as lost when its supervisor (the process on the host that started the job) has certainly ended
the job. Each message from the controller renews the lease of the job on its host. So the lease ends at most
`lease_s` seconds after the controller has received the last message from the host. The supervisor then ends
the job within its grace time. The controller then waits `margin_s` more seconds, because clocks run at
different speeds and the kernel needs time to end a process.

Example: lease 300 s, grace 30 s, margin 30 s: the job is lost after 360 s of silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.core.cluster.node import Node
from controller.core.lifecycle.requeue_policy import restarts_left
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost
from wire.text import duration


@dataclass(frozen=True, slots=True)
class NodeLossPolicy:
    """The settings of scheduler.toml for jobs on lost nodes. A job's own settings override them."""

    policy: OnNodeLost = OnNodeLost.WAIT
    lease_s: float = 300.0
    margin_s: float = 30.0
    down_after_s: float = 60.0


DEFAULT_NODE_LOSS = NodeLossPolicy()


def with_loss_policy(losses: NodeLossPolicy, spec: JobSpec) -> JobSpec:
    """Return the spec with the policy for lost nodes: that of the user, otherwise the configured policy. If
    the policy is to requeue the job, also set the configured lease. A later change of the configuration then
    does not affect the job.
    """
    policy = spec.on_node_lost or losses.policy
    lease_s = losses.lease_s if policy is OnNodeLost.REQUEUE else None
    if policy is OnNodeLost.WAIT and spec.on_node_lost is None and spec.lease_s is None:
        return spec
    return replace(spec, on_node_lost=policy, lease_s=lease_s)


def goes_down(node: Node, losses: NodeLossPolicy, silent_s: float) -> bool:
    """Return whether a node that has been silent for `silent_s` seconds must be recorded as DOWN. Return
    False if the node is connected or already DOWN.
    """
    return not node.up and not node.down and silent_s >= losses.down_after_s


def lost_jobs(state: State, node: Node, losses: NodeLossPolicy, silent_s: float) -> Iterator[Job]:
    """Yield the jobs on a node that count as lost when the node has been silent for `silent_s` seconds. Yield
    no job of a connected node.
    """
    if node.up or not node.facts.leases:
        # A connected node has lost no job. On a node without leases, nothing ends the jobs, so they may still
        # run.
        return
    for number in sorted(node.held):
        job = state.jobs[number]
        lost_after = lost_after_s(job, losses)
        if lost_after is not None and silent_s >= lost_after:
            yield job


def lost_after_s(job: Job, losses: NodeLossPolicy) -> float | None:
    """Return after how many seconds without messages from its node the job's supervisor has certainly ended
    the job. Return None for a job without a lease.
    """
    lease_s = job.spec.lease_s
    return None if lease_s is None else lease_s + job.spec.grace_s + losses.margin_s


def silence_limits(state: State, node: Node, losses: NodeLossPolicy) -> set[float]:
    """Return all numbers of seconds without messages after which the node counts as DOWN or a job on the node
    counts as lost.
    """
    held = node.held if node.facts.leases else ()
    of_jobs = {lost_after_s(state.jobs[job], losses) for job in held}
    return {losses.down_after_s, *(each for each in of_jobs if each is not None)}


def is_overdue(state: State, node: Node, losses: NodeLossPolicy, silent_s: float) -> bool:
    """Return whether a node that has been silent for `silent_s` seconds counts as DOWN, or whether a job on
    the node counts as lost.
    """
    return goes_down(node, losses, silent_s) or any(lost_jobs(state, node, losses, silent_s))


def silent_node_text(job: Job, node: Node, losses: NodeLossPolicy) -> str:
    """Return a phrase about a job on a silent node. The phrase says that the job waits for the node, or when
    the job counts as lost and is queued again.
    """
    lost_after = lost_after_s(job, losses)
    if lost_after is not None and node.facts.leases:
        then = "is queued again" if restarts_left(job) else "fails"
        return f"{then} when {node.name} has been silent for {duration(lost_after)}"
    if job.spec.on_node_lost is OnNodeLost.MANUAL:
        return f"waits for {node.name}, or for 'corral nodes lost {node.name}'"
    return f"waits for {node.name}"
