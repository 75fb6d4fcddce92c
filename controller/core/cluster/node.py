"""One node of the cluster: its hardware, its state, and the resources that jobs hold on it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field

from controller.core.cluster.gpus.gpu_health import GpuCondition
from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.model.allocation import Allocation
from controller.core.model.events.nodes import AS_IT_IS, Overcommit
from wire.agent.orders import GpuHold
from wire.agent.reports import GpuFacts, NodeFacts
from wire.cluster.hosts import HostSpec
from wire.job.placement.affinity import Taint
from wire.names import GpuHealth, NodeState

JUST_STARTED = "the controller has just started"
NO_FACTS = NodeFacts(cpu_milli=0, memory_mib=0)


@dataclass(frozen=True, slots=True)
class TimedDrain:
    """A drain that the operator `by` has ordered with `corral nodes drain --by`. The node must be empty at
    the time `empty_by`. Until then, only jobs that end before `empty_by` start on the node.
    """

    empty_by: float
    by: str
    why: str = ""


@dataclass(slots=True)
class Node:
    """One cluster node. `held` contains the allocation of each job that holds resources on the node."""

    name: str
    labels: dict[str, str]
    facts: NodeFacts = NO_FACTS
    overcommit: Overcommit = AS_IT_IS
    up: bool = False
    down: bool = False
    """True if the node has been disconnected for longer than `down_after_s`, so that its state is DOWN."""
    drained: bool = False
    timed_drain: TimedDrain | None = None
    """The timed drain of the node; None if there is none or if its time has passed."""
    why: str = "never connected"
    since: float = 0.0
    boot_id: str = ""
    version: str = ""
    host: HostSpec | None = None
    """The host and login for the connection to the node, if an operator has added the node. None for nodes of
    the configuration.
    """
    health: dict[str, GpuCondition] = field(default_factory=dict)
    held: dict[int, Allocation] = field(default_factory=dict)
    claims: dict[int, Allocation] = field(default_factory=dict)
    """By job id: the resources of this node that are kept for each nominated job until the job's victims have
    left.
    """
    leaving: dict[int, int] = field(default_factory=dict)
    """By job id: for each job that is preempted or moved away and still holds resources of this node, the
    nominated job that will get these resources.
    """
    slots: dict[str, int] = field(default_factory=dict)
    row: int = -1
    last_placement: int = 0
    """The number of the node's last placement. Placements are counted from the controller's start; 0 means
    none.
    """
    marks: NodeOverrides = field(default_factory=NodeOverrides)

    def copy(self) -> Node:
        """Return a copy with its own allocations and nominations."""
        other = copy(self)
        other.labels, other.health = dict(self.labels), dict(self.health)
        other.held, other.claims, other.leaving = dict(self.held), dict(self.claims), dict(self.leaving)
        return other

    @property
    def effective_labels(self) -> dict[str, str]:
        """The node's labels. Labels set by operators override labels of the configuration, and these override
        labels that the agent reports.
        """
        return self.marks.effective_labels({**self.facts.labels, **self.labels})

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's taints. Taints set by operators override taints of the configuration."""
        return self.marks.effective_taints()

    @property
    def reconnect_expected(self) -> bool:
        """True if the node is disconnected only because the controller has just started and its agent has not
        connected yet.
        """
        return not self.up and not self.down and self.why == JUST_STARTED

    @property
    def state(self) -> NodeState:
        """The state of the node for users. A disconnected node is DOWN or SUSPECT, also while the node is
        drained.
        """
        if not self.up:
            return NodeState.DOWN if self.down or not self.boot_id else NodeState.SUSPECT
        return NodeState.DRAINED if self.drained else NodeState.UP

    def unavailable(self) -> Iterator[Allocation]:
        """Yield the resources of the node that new jobs cannot get.

        1. For each running job whose resources are not kept for a nominated job, its allocation.
        2. For each nominated job, the greater of two amounts: the resources kept for the job, and the
           resources that its victims (jobs preempted for it) still hold.
        """
        if not self.claims:
            yield from self.held.values()
            return
        yield from (allocation for job, allocation in self.held.items() if job not in self.leaving)
        for job, claim in self.claims.items():
            yield _greater(claim, [self.held[each] for each, to in self.leaving.items() if to == job])

    def health_of(self, gpu: GpuFacts) -> GpuHealth:
        """Return the health of the GPU as the controller recorded it last. If the controller has recorded no
        health of this GPU, return the health that the agent reported.
        """
        known = self.health.get(gpu.uuid)
        return gpu.health if known is None else known.health

    def condition(self, gpu: GpuFacts) -> GpuCondition:
        """Return the condition of the GPU as the controller recorded it last. If the controller has recorded
        no condition of this GPU, return the health and the reason that the agent reported.
        """
        return self.health.get(gpu.uuid) or GpuCondition(gpu.health, gpu.why)


def _greater(claim: Allocation, leaving: list[Allocation]) -> Allocation:
    """Return, for each resource, the greater of two amounts: the amount kept for a nominated job (`claim`),
    and the sum that its victims still hold (`leaving`).
    """
    milli: dict[str, int] = {}
    for allocation in leaving:
        for hold in allocation.gpus:
            milli[hold.uuid] = milli.get(hold.uuid, 0) + hold.milli
    for hold in claim.gpus:
        milli[hold.uuid] = max(milli.get(hold.uuid, 0), hold.milli)
    return Allocation(
        claim.node,
        max(claim.cpu_milli, sum(each.cpu_milli for each in leaving)),
        max(claim.memory_mib, sum(each.memory_mib for each in leaving)),
        tuple(GpuHold(uuid, each) for uuid, each in milli.items()),
        scratch_mib=max(claim.scratch_mib, sum(each.scratch_mib for each in leaving)),
    )
