"""What operators ask: nodes, marks, quotas, shares and reservations."""

from __future__ import annotations

from collections.abc import Callable

from controller.core import events, inputs, reserving
from controller.core.admission import wrong_tenant
from controller.core.ender import Ender
from controller.core.events import Event
from controller.core.eviction import evicted
from controller.core.heed import HEED_HINT, nobody_heeds, unheeded_taint
from controller.core.inputs import DONE, Refusal, Reply, no_such_node
from controller.core.marks import mark_problem
from controller.core.plugin import Pipeline
from controller.core.shares import share_problem
from controller.core.state import State
from wire.quota import Quota
from wire.quota import problems as problems_of_quota
from wire.text import counted
from wire.words import Reason


class Warden:
    """Changes the cluster, or says why not."""

    def __init__(
        self,
        state: State,
        pipeline: Pipeline,
        ender: Ender,
        record: Callable[[Event], None],
    ) -> None:
        self._state = state
        self._pipeline = pipeline
        self._ender = ender
        self._record = record

    def add_node(self, given: inputs.AddNode, now: float) -> Reply:
        """Know a node, or know it otherwise."""
        node = self._state.nodes.get(given.node)
        taints = node.marks.configured if node is not None else ()
        if node is None or (node.labels, node.host, taints) != (given.labels, given.host, given.taints):
            self._record(
                events.NodeAdded(given.node, now, dict(given.labels), given.host, given.by, given.taints)
            )
            for claimant in sorted(self._state.nodes.by_name[given.node].claims):
                self._ender.unclaim(
                    self._state.jobs[claimant], f"node {given.node} is configured otherwise", now, given.node
                )
            self._evict(given.node, now)
        return DONE

    def pin_key(self, given: inputs.PinKey, now: float) -> Reply:
        """This is the key of the host from now on."""
        if self._state.host_keys.get(given.node) != given.key:
            self._record(events.HostKeyPinned(now, given.node, given.key, given.by))
        return DONE

    def remove_node(self, given: inputs.RemoveNode, now: float) -> Reply:
        """Know a node no more, once nothing runs there."""
        node = self._state.nodes.get(given.node)
        if node is None:
            return no_such_node(given.node)
        # A gang is there until its last member has ended, wherever that is.
        held = [self._state.jobs[job] for _, job in self._state.releases]
        labels = [job.label for job in held if given.node in job.members]
        if labels:
            return Refusal(
                "conflict",
                f"node {given.node} still has {counted(len(labels), 'job')}: {', '.join(labels[:10])}",
                "node",
                f"'corral nodes drain {given.node}' lets them end, or cancel them."
                if node.up
                else f"It is away. If nothing runs there any more: 'corral nodes lost {given.node}' first.",
            )
        for claimant in sorted(node.claims):
            self._ender.unclaim(self._state.jobs[claimant], f"node {given.node} is removed", now, given.node)
        self._record(events.NodeRemoved(given.node, now, given.by))
        return DONE

    def mark_node(self, given: inputs.MarkNode, now: float) -> Reply:
        """Lay labels and taints over the configured ones."""
        if self._state.nodes.get(given.node) is None:
            return no_such_node(given.node)
        wrong = mark_problem(given.labels, given.taints)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0])
        taint = unheeded_taint(self._pipeline.filters, given.taints)
        if taint is not None:
            return Refusal("invalid", nobody_heeds("taints"), f"taints.{taint}", HEED_HINT)
        self._record(events.NodeMarked(given.node, now, given.by, dict(given.labels), dict(given.taints)))
        for claimant in sorted(self._state.nodes.by_name[given.node].claims):
            self._ender.unclaim(self._state.jobs[claimant], f"node {given.node} was marked", now, given.node)
        self._evict(given.node, now)
        return DONE

    def _evict(self, node: str, now: float) -> None:
        """Whoever does not bear the node's NoExecute taints has to go, and is queued again."""
        for job, why in list(evicted(self._state, self._state.nodes.by_name[node])):
            self._ender.stop(job, Reason.EVICTED, why, now)

    def drain(self, given: inputs.Drain, now: float) -> Reply:
        """Place nothing there any more; what runs goes on."""
        if self._state.nodes.get(given.node) is None:
            return no_such_node(given.node)
        self._record(events.NodeDrained(given.node, now, given.why, given.by))
        return DONE

    def resume(self, given: inputs.Resume, now: float) -> Reply:
        """Place jobs there again."""
        node = self._state.nodes.get(given.node)
        if node is None:
            return no_such_node(given.node)
        if not node.drained:
            return Refusal("conflict", f"node {given.node} is not drained", "node")
        self._record(events.NodeResumed(given.node, now, given.by))
        return DONE

    def set_quota(self, given: inputs.SetQuota, now: float) -> Reply:
        """Lay limits over those of scheduler.toml."""
        refused = wrong_tenant(given.scope, given.name)
        if refused is not None:
            return refused
        wrong = problems_of_quota(given.scope, given.quota)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, f"quota.{where}")
        key = given.scope, given.name
        quota = given.quota.over(self._state.quotas.edits.get(key, Quota()))
        if quota != self._state.quotas.edits.get(key):
            self._record(events.QuotaSet(now, given.scope, given.name, quota, given.by))
        return DONE

    def unset_quota(self, given: inputs.UnsetQuota, now: float) -> Reply:
        """Go back to those of scheduler.toml."""
        if (given.scope, given.name) not in self._state.quotas.edits:
            message = f"no quota was set for {given.scope} {given.name!r}"
            return Refusal("not_found", message, "name", "'corral quota list' shows what there is.")
        self._record(events.QuotaUnset(now, given.scope, given.name, given.by))
        return DONE

    def set_share(self, given: inputs.SetShare, now: float) -> Reply:
        """Lay a weight and limits over those of scheduler.toml."""
        wrong = share_problem(given.share, given.weight, given.soft, given.hard)
        if wrong is not None:
            return Refusal("invalid", wrong[1], wrong[0], "'corral shares' shows what there is.")
        self._record(events.ShareSet(now, given.share, given.weight, given.by, given.soft, given.hard))
        return DONE

    def reserve(self, given: inputs.Reserve, now: float) -> Reply:
        """Keep nodes for a time."""
        return reserving.reserve(self._state, given, now, self._record)

    def cancel_reservation(self, given: inputs.CancelReservation, now: float) -> Reply:
        """Give the nodes back to everybody."""
        return reserving.cancel(self._state, given, now, self._record)
