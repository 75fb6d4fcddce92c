"""Handles the commands of operators on nodes, labels, taints, quotas and shares."""

from __future__ import annotations

from controller.core.cluster.labels_and_taints import override_problem
from controller.core.fairshare.usage import share_problem
from controller.core.framework.unfiltered_constraints import (
    UNFILTERED_HINT,
    unfiltered_message,
    unfiltered_taint,
)
from controller.core.input_handlers.context import Context
from controller.core.input_handlers.submission_checks import tenant_problem
from controller.core.lifecycle.stop import jobs_to_evict
from controller.core.model.decision.decision import DONE, Refusal, Reply
from controller.core.model.events.controller import JournalSealed
from controller.core.model.events.nodes import (
    HostKeyPinned,
    NodeAdded,
    NodeDrained,
    NodeMarked,
    NodeRemoved,
    NodeResumed,
)
from controller.core.model.events.tenants import QuotaSet, QuotaUnset, ShareSet
from controller.core.model.inputs import controller_inputs, node_inputs, policy_inputs
from controller.core.rebalance.timed_drains import TimedDrains
from wire.cluster.quota import Quota
from wire.cluster.quota import quota_problems as problems_of_quota
from wire.names import GpuHealth, Reason
from wire.text import counted


class OperatorCommands:
    """Handles commands of operators. A command is executed completely, or refused without any change."""

    def __init__(self, context: Context, timed_drains: TimedDrains) -> None:
        self._timed_drains = timed_drains
        self._state = context.state
        self._pipeline = context.pipeline
        self._stopper = context.stopper
        self._record = context.record

    def add_node(self, given: node_inputs.AddNode, now: float) -> Reply:
        """Add a node, or change the configured labels, taints and host of a known node."""
        node = self._state.nodes.get(given.node)
        taints = node.marks.configured if node is not None else ()
        if node is None or (node.labels, node.host, taints) != (given.labels, given.host, given.taints):
            self._record(NodeAdded(given.node, now, dict(given.labels), given.host, given.by, given.taints))
            for claimant in sorted(self._state.nodes.by_name[given.node].claims):
                self._stopper.unclaim(
                    self._state.jobs[claimant],
                    f"node {given.node} has another configuration",
                    now,
                    given.node,
                )
            self._evict(given.node, now)
        return DONE

    def pin_key(self, given: node_inputs.PinKey, now: float) -> Reply:
        if self._state.host_keys.get(given.node) != given.key:
            self._record(HostKeyPinned(now, given.node, given.key, given.by))
        return DONE

    def seal_journal(self, given: controller_inputs.SealJournal, now: float) -> Reply:
        """Record that the journal entries up to number `given.through` will be deleted. Also record the hash
        of the last deleted entry, because the hash chain of the later entries begins with this hash.

        The store deletes the entries after the commit.
        """
        self._record(JournalSealed(now, given.through, given.digest))
        return DONE

    def remove_node(self, given: node_inputs.RemoveNode, now: float) -> Reply:
        """Remove a node from the cluster. The command is refused while a job holds resources on the node."""
        node = self._state.nodes.by_name[given.node]
        # A gang keeps its nodes until its last member has ended. Therefore also count a gang that has no more
        # processes on this node.
        held = [self._state.jobs[job] for _, job in self._state.releases]
        labels = [job.label for job in held if given.node in job.members]
        if labels:
            return Refusal(
                "conflict",
                f"node {given.node} still has {counted(len(labels), 'job')}: {', '.join(labels[:10])}",
                "node",
                f"Drain it with 'corral nodes drain {given.node}' and wait until they end, or cancel them."
                if node.up
                else "The node is disconnected. If no process runs on it any more, first run "
                f"'corral nodes lost {given.node}'.",
            )
        for claimant in sorted(node.claims):
            self._stopper.unclaim(
                self._state.jobs[claimant], f"node {given.node} is removed", now, given.node
            )
        self._record(NodeRemoved(given.node, now, given.by))
        return DONE

    def mark_node(self, given: node_inputs.MarkNode, now: float) -> Reply:
        """Set or remove labels and taints of a node. The new values override the values of the
        configuration.
        """
        wrong = override_problem(given.labels, given.taints)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0])
        taint = unfiltered_taint(self._pipeline.filters, given.taints)
        if taint is not None:
            return Refusal("invalid", unfiltered_message("taints"), f"taints.{taint}", UNFILTERED_HINT)
        self._record(NodeMarked(given.node, now, given.by, dict(given.labels), dict(given.taints)))
        for claimant in sorted(self._state.nodes.by_name[given.node].claims):
            self._stopper.unclaim(
                self._state.jobs[claimant], f"node {given.node} has other labels or taints", now, given.node
            )
        self._evict(given.node, now)
        return DONE

    def _evict(self, node: str, now: float) -> None:
        """Stop and queue again the jobs on the node that do not tolerate its NoExecute taints."""
        for job, why in list(jobs_to_evict(self._state, self._state.nodes.by_name[node])):
            self._stopper.stop(job, Reason.EVICTED, why, now)

    def drain(self, given: node_inputs.Drain, now: float) -> Reply:
        """Drain a node. With `empty_by` (a timed drain), jobs that end before this time may still start on
        the node.
        """
        past = None if given.empty_by is None else past_drain(given.empty_by, now)
        if past is not None:
            return past
        before = self._timed_drains.stops()
        self._record(NodeDrained(given.node, now, given.why, given.by, given.empty_by))
        self._timed_drains.warn(self._state.nodes.by_name[given.node], before, now)
        return DONE

    def resume(self, given: node_inputs.Resume, now: float) -> Reply:
        """End the drain of a node, so that new jobs can be placed on it again."""
        node = self._state.nodes.by_name[given.node]
        if not node.drained and node.timed_drain is None:
            out = [gpu.number for gpu in node.facts.gpus if node.health_of(gpu) is not GpuHealth.OK]
            hint = f"GPU {out[0]} takes no jobs: corral nodes resume {given.node}:{out[0]}" if out else ""
            return Refusal("conflict", f"node {given.node} is not drained", "node", hint)
        self._record(NodeResumed(given.node, now, given.by))
        return DONE

    def set_quota(self, given: policy_inputs.SetQuota, now: float) -> Reply:
        """Set limits of a tenant. The new limits override the limits of scheduler.toml."""
        refused = tenant_problem(given.scope, given.name)
        if refused is not None:
            return refused
        wrong = problems_of_quota(given.scope, given.quota)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, f"quota.{where}")
        key = given.scope, given.name
        quota = given.quota.over(self._state.quotas.edits.get(key, Quota()))
        if quota != self._state.quotas.edits.get(key):
            self._record(QuotaSet(now, given.scope, given.name, quota, given.by))
        return DONE

    def unset_quota(self, given: policy_inputs.UnsetQuota, now: float) -> Reply:
        """Remove the limits that an operator set for a tenant, so that the limits of scheduler.toml apply
        again.
        """
        if (given.scope, given.name) not in self._state.quotas.edits:
            message = f"no quota was set for {given.scope} {given.name!r}"
            return Refusal("not_found", message, "name", "'corral quota list' shows all quotas.")
        self._record(QuotaUnset(now, given.scope, given.name, given.by))
        return DONE

    def set_share(self, given: policy_inputs.SetShare, now: float) -> Reply:
        """Set the weight or limits of a tenant. The new values override the values of scheduler.toml."""
        wrong = share_problem(given.share, given.weight, given.soft, given.hard)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0], "'corral shares' shows all shares.")
        self._record(ShareSet(now, given.share, given.weight, given.by, given.soft, given.hard))
        return DONE


def past_drain(empty_by: float, now: float) -> Refusal | None:
    """Return a refusal if the time by which a node must be empty is already over; otherwise None."""
    if empty_by > now:
        return None
    hint = "Give a later time, or leave the time out to drain the node at once."
    return Refusal("invalid", "the time is in the past", "empty_by", hint)
