"""The nodes of the cluster, the resources that jobs hold on them, and the node table (numpy columns) of
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from controller.core.cluster.dataset_reads import DatasetReads
from controller.core.cluster.gpus.gpu_counts import GpuCounts
from controller.core.cluster.gpus.gpu_health import GpuCondition
from controller.core.cluster.gpus.gpu_requirements import GpuType
from controller.core.cluster.gpus.gpu_topology import GpuTopology
from controller.core.cluster.gpus.gpu_value import DemandStats, GpuValue
from controller.core.cluster.job_affinity import JobAffinityIndex
from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.cluster.node_table import ABSENT, NodeTable, empty_table
from controller.core.model.allocation import Allocation
from controller.core.model.events.nodes import AS_IT_IS, Overcommit
from controller.core.model.request import PerNodeRequest
from wire.agent.orders import GpuHold
from wire.agent.reports import GpuFacts, NodeFacts
from wire.cluster.hosts import HostSpec
from wire.job.affinity import Taint
from wire.names import WHOLE_GPU, GpuHealth, NodeState

CHANGE_LOG_LIMIT = 65_536
VECTORISE_FROM = 12
"""From this number of rows on, one numpy operation on all rows is faster than an operation on each row."""
JUST_STARTED = "the controller has just started"
NO_FACTS = NodeFacts(cpu_milli=0, memory_mib=0)
NO_HEIRS: Mapping[int, int] = {}


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
    """One cluster node. `held` has the allocation of each job that holds resources on the node."""

    name: str
    labels: dict[str, str]
    facts: NodeFacts = NO_FACTS
    overcommit: Overcommit = AS_IT_IS
    up: bool = False
    down: bool = False
    """True if the node has been disconnected for so long that its state is DOWN."""
    drained: bool = False
    timed_drain: TimedDrain | None = None
    """The timed drain of the node, until its time has come. None if there is none."""
    why: str = "never connected"
    since: float = 0.0
    boot_id: str = ""
    version: str = ""
    host: HostSpec | None = None
    """How to connect to the node, if an operator added it. None for nodes of the configuration."""
    health: dict[str, GpuCondition] = field(default_factory=dict)
    held: dict[int, Allocation] = field(default_factory=dict)
    claims: dict[int, Allocation] = field(default_factory=dict)
    """The resources of this node that are kept for each nominated job until the job's victims have left."""
    leaving: dict[int, int] = field(default_factory=dict)
    """For each victim that still holds resources here, the nominated job for which these resources are
    kept.
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
        """The node's labels. Labels set by operators come first, then those of the configuration, then those
        that the agent reports.
        """
        return self.marks.effective_labels({**self.facts.labels, **self.labels})

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's taints. Taints set by operators come before those of the configuration."""
        return self.marks.effective_taints()

    @property
    def reconnect_expected(self) -> bool:
        """True if the node is disconnected only because the controller has just started and its agent has not
        connected yet.
        """
        return not self.up and not self.down and self.why == JUST_STARTED

    @property
    def state(self) -> NodeState:
        """The state of the node for users. A disconnected node is DOWN or SUSPECT even if it is drained."""
        if not self.up:
            return NodeState.DOWN if self.down or not self.boot_id else NodeState.SUSPECT
        return NodeState.DRAINED if self.drained else NodeState.UP

    def unavailable(self) -> Iterator[Allocation]:
        """Yield the resources of the node that new jobs cannot get.

        1. The allocation of each running job that is not being preempted.
        2. For each nominated job, the greater one of two amounts: the resources kept for it, and the
           resources that its victims (the jobs preempted for it) still hold.
        """
        if not self.claims:
            yield from self.held.values()
            return
        yield from (allocation for job, allocation in self.held.items() if job not in self.leaving)
        for job, claim in self.claims.items():
            yield _greater(claim, [self.held[each] for each, to in self.leaving.items() if to == job])

    def health_of(self, gpu: GpuFacts) -> GpuHealth:
        """Return the last health of the GPU that the controller has recorded. If there is none, return the
        health that the agent reported.
        """
        known = self.health.get(gpu.uuid)
        return gpu.health if known is None else known.health

    def condition(self, gpu: GpuFacts) -> GpuCondition:
        """Return the last health of the GPU, with its reason, that the controller has recorded. If there is
        none, return the health and the reason that the agent reported.
        """
        return self.health.get(gpu.uuid) or GpuCondition(gpu.health, gpu.why)


def _greater(claim: Allocation, leaving: list[Allocation]) -> Allocation:
    """Return the greater one of two amounts for each resource: the amount kept for a nominated job, and the
    amount that its victims still hold.
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


class Nodes:
    """All nodes by name, and their NodeTable. Every method that changes a node also updates the table.

    The rows of the table are sorted by node name. Row numbers change only when nodes are added or removed.
    The whole table is then rebuilt once, at the next access. So hundreds of nodes can join with a single
    rebuild.

    Versions. Code that caches a value computed from nodes stores one of these numbers with the value. When
    the number has changed, the value is computed again.
    - `layout_version` grows when row numbers change, or when labels, taints or hardware of a node change. All
      values cached by row number are then invalid.
    - `change_count` is the number of row changes so far. `changed_since(count)` returns the rows that have
      changed since then, or None if the log of changes does not reach back so far; then all rows must be read
      again.
    - `room_version` grows when resources may have become free. A request that did not fit may now fit.
    - `status_version` grows when a node connects, disconnects, is drained or resumed, when the health of a
      GPU changes, or when a nomination changes. Backfill reservations are then invalid.
    - `value_version` grows when GpuValue must be computed again because users submit other requests. Scores
      of nodes are then invalid, but results of filters are not.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Node] = {}
        self.removed: set[str] = set()
        """The names of removed nodes. Reports from their agents are ignored."""
        self.layout_version = 0
        self.change_count = 0
        self.room_version = 0
        self.value_version = 0
        self.status_version = 0
        self.claims_to_check: set[int] = set()
        """Nominated jobs that the next cycle must check. They may be able to start, because one of their kept
        nodes has changed since the last cycle.
        """
        self.never_connected = 0
        """The number of known nodes that have never connected."""
        self.demand = DemandStats()
        """Counts how often each request was submitted."""
        self.gpu_counts = GpuCounts()
        self._placements = 0
        self.datasets = DatasetReads()
        self.job_affinity = JobAffinityIndex()
        self._gpu_topology = GpuTopology((), 0)
        self._gpu_topology_at = -1
        self._gpu_value: GpuValue | None = None
        self._gpu_value_at = (-1, 0)
        self._log: list[int] = []
        self._log_from = 0
        self._rows: list[Node] = []
        self._columns: NodeTable = empty_table(0, 0)
        self._stale = False
        self._idle: NodeTable | None = None
        self._max_free = (0, 0)
        self._max_free_gpus: tuple[int, int] | None = None
        """Upper bounds of what any node has free: CPU, memory, whole GPUs, and thousandths of one GPU."""
        self._max_free_at = (-1, -1)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def rows(self) -> list[Node]:
        """The nodes sorted by name, in the order of the rows of the node table."""
        if self._stale:
            self._lay_out()
        return self._rows

    @property
    def columns(self) -> NodeTable:
        """The node table. It is rebuilt first if nodes were added or removed."""
        if self._stale:
            self._lay_out()
        return self._columns

    def get(self, name: str) -> Node | None:
        return self.by_name.get(name)

    def copy(self) -> Nodes:
        """Return a copy with all allocations and nominations, on which callers can try placements."""
        other = Nodes()
        other._rows = [node.copy() for node in self.rows]
        other.by_name = {node.name: node for node in other._rows}
        other.removed, other.never_connected = set(self.removed), self.never_connected
        other._placements, other.gpu_counts = self._placements, GpuCounts(self.gpu_counts.by_model)
        other.datasets, other.demand = self.datasets, self.demand
        other.job_affinity = self.job_affinity.copy()
        # Copy the node table as well. Computing it again would take most of the time of the copy.
        other._columns = self.columns.copy()
        other._bind_columns()
        other.layout_version = self.layout_version
        other._gpu_topology, other._gpu_topology_at = self._gpu_topology, self._gpu_topology_at
        return other

    def insert(self, node: Node) -> None:
        self.by_name[node.name] = node
        self.removed.discard(node.name)
        self.never_connected += not node.boot_id
        self.gpu_counts.change((), node.facts.gpus)
        self._void_caches(stale=True)

    def copy_empty(self, others: Nodes) -> None:
        """Add a copy of each node in `others`, without the jobs and nominations on it."""
        for node in others:
            plain: dict[str, Any] = {"held": {}, "claims": {}, "leaving": {}, "slots": {}, "row": -1}
            self.insert(replace(node, labels=dict(node.labels), health=dict(node.health), **plain))
        self.removed, self._placements = set(others.removed), others._placements

    def remove(self, node: Node) -> None:
        """Remove a node on which no job holds resources."""
        del self.by_name[node.name]
        self.removed.add(node.name)
        self.never_connected -= not node.boot_id
        self.gpu_counts.change(node.facts.gpus, ())
        self._void_caches(stale=True)

    def set_labels(self, node: Node, labels: Mapping[str, str], marks: NodeOverrides) -> None:
        """Set the configured labels of a node, and the labels and taints that operators set."""
        node.labels, node.marks = dict(labels), marks
        if not self._stale:
            self._write(node)
        self._void_caches()

    def set_facts(
        self, node: Node, facts: NodeFacts, boot_id: str, overcommit: Overcommit = AS_IT_IS
    ) -> None:
        """Set the hardware that the agent reported, and the overcommit factors of the configuration.
        `boot_id` identifies the present boot of the host.
        """
        self.never_connected -= not node.boot_id
        same = node.facts == facts and node.overcommit == overcommit
        self.gpu_counts.change(node.facts.gpus, facts.gpus)
        node.facts, node.boot_id, node.overcommit = facts, boot_id, overcommit
        if same:
            self.refresh(node)
        elif self._stale or len(facts.gpus) > self._columns.gpu_free.shape[1]:
            self._void_caches(stale=True)
        else:
            self._write(node)
            self._void_caches()

    def _void_caches(self, *, stale: bool = False) -> None:
        """Invalidate all values that are cached by row number. If `stale`, the node table itself is out of
        date and is rebuilt at the next access.
        """
        self._stale = self._stale or stale
        self._idle = None
        self._columns.gpu_needs_cache.clear()
        self._columns.domain_cache.clear()
        self._forget_changes()
        self.layout_version += 1
        self.room_version += 1

    def gpu_models(self, name: str) -> dict[str, str]:
        """Return the model of each GPU of a node, by GPU UUID."""
        return {gpu.uuid: gpu.model for gpu in self.by_name[name].facts.gpus}

    def hold(self, job: int, allocations: Sequence[Allocation]) -> None:
        """Record that the job holds these allocations, one on each node."""
        nodes = [self.by_name[allocation.node] for allocation in allocations]
        turn = self._columns.last_placement
        for given, (node, allocation) in enumerate(
            zip(nodes, allocations, strict=True), self._placements + 1
        ):
            node.held[job] = allocation
            node.last_placement = given
            if not self._stale:
                turn[node.row] = given
        self._placements += len(nodes)
        self._shift(nodes, allocations, -1)

    def free(self, job: int, names: Iterable[str]) -> None:
        """Record that the job no longer holds resources on these nodes."""
        nodes = [self.by_name[name] for name in names]
        allocations = [node.held.pop(job) for node in nodes]
        for node in nodes:
            claimant = node.leaving.pop(job, None) if node.leaving else None
            if claimant is not None:
                self.claims_to_check.add(claimant)
        self._shift(nodes, allocations, 1)
        self.room_version += 1

    def claim(self, job: int, allocation: Allocation, victims: Iterable[int]) -> None:
        """Keep these resources for the job until its victims (the jobs preempted for it) have left. Also
        record which jobs are its victims.
        """
        node = self.by_name[allocation.node]
        node.claims[job] = allocation
        for victim in victims:
            if victim in node.held:
                # Do not overwrite an entry. A job that is being moved is its own victim here. Its old
                # resources may already be kept for the waiting job that needs them.
                node.leaving.setdefault(victim, job)
        self.claims_to_check.add(job)
        self._rewrite(node)

    def unclaim(self, job: int, name: str, heirs: Mapping[int, int] = NO_HEIRS) -> None:
        """Withdraw the nomination of the job on this node. The node's resources are no longer kept for the
        job.

        A victim (a job that was preempted for this job) may still hold some of the resources. `heirs` names
        another nominated job for each such victim, by the victim's id. From now on, these resources are kept
        for the other job.
        """
        node = self.by_name[name]
        del node.claims[job]
        for victim in [victim for victim, claimant in node.leaving.items() if claimant == job]:
            heir = victim if victim != job and victim in node.claims else heirs.get(victim)
            if heir is not None:
                node.leaving[victim] = heir
            else:
                del node.leaving[victim]
        self._rewrite(node)
        self.room_version += 1

    def _rewrite(self, node: Node) -> None:
        """Write the free resources of the node in the node table again, and invalidate backfill
        reservations.
        """
        if not self._stale:
            self._write_free(node)
            self._log_changes((node.row,))
        self.status_version += 1

    def _shift(self, nodes: Sequence[Node], allocations: Sequence[Allocation], sign: int) -> None:
        """Add allocations to the free resources in the node table (`sign` 1), or subtract them (`sign` -1).
        There is one allocation for each node, and each node occurs at most once.
        """
        if self._stale:
            # Write nothing now. The node table is rebuilt at its next access, and then includes these
            # allocations.
            return
        cpu, memory, gpus = self._columns.cpu_free, self._columns.memory_free, self._columns.gpu_free
        rows = [node.row for node in nodes]
        if len(rows) < VECTORISE_FROM:
            for row, allocation in zip(rows, allocations, strict=True):
                cpu[row] += sign * allocation.cpu_milli
                memory[row] += sign * allocation.memory_mib
        else:
            at = np.array(rows, dtype=np.intp)
            cpu[at] += sign * np.array([allocation.cpu_milli for allocation in allocations])
            memory[at] += sign * np.array([allocation.memory_mib for allocation in allocations])
        for node, allocation in zip(nodes, allocations, strict=True):
            if allocation.scratch_mib:
                self._columns.scratch_free[node.row] += sign * allocation.scratch_mib
            for gpu in allocation.gpus:
                slot = node.slots.get(gpu.uuid)
                if slot is not None and gpus[node.row, slot] != ABSENT:
                    gpus[node.row, slot] += sign * gpu.milli
            if node.claims:
                self._write_free(node)  # The free resources also depend on the nominations.
        self._log_changes(rows)

    def _log_changes(self, rows: Sequence[int]) -> None:
        if len(self._log) + len(rows) > CHANGE_LOG_LIMIT:
            self._forget_changes()
        self._log.extend(rows)
        self.change_count += len(rows)

    def _forget_changes(self) -> None:
        self._log.clear()
        self._log_from = self.change_count

    def changed_since(self, changes: int) -> list[int] | None:
        """Return the row numbers of the nodes that have changed since `change_count` had the value `changes`,
        the oldest change first.

        Return None if the log of changes does not reach back so far.
        """
        return None if changes < self._log_from else self._log[changes - self._log_from :]

    def refresh(self, node: Node) -> None:
        """Write the node's row in the node table again, after the state of the node or the health of a GPU
        changed.
        """
        self.claims_to_check.update(node.claims)
        if not self._stale:
            self._write(node)
            self._log_changes((node.row,))
        self.status_version += 1
        self.room_version += 1

    def _lay_out(self) -> None:
        self._rows = sorted(self.by_name.values(), key=lambda node: node.name)
        width = max((len(node.facts.gpus) for node in self._rows), default=0)
        self._columns = empty_table(len(self._rows), width)
        self._bind_columns()
        for row, node in enumerate(self._rows):
            node.row = row
            self._write(node)
        self._stale = False

    def _bind_columns(self) -> None:
        """Give the node table access to the other values of these nodes that plugins may read."""
        self._columns.gpu_value = self.gpu_value
        self._columns.gpu_topology = self.gpu_topology
        self._columns.job_affinity = lambda: self.job_affinity
        self._columns.dataset_reads = lambda: self.datasets

    def rebuilt_columns(self) -> NodeTable:
        """Return a node table computed from nodes and allocations alone. Tests compare it with the table that
        is updated in place.
        """
        kept = self._rows, self._columns
        self._lay_out()
        fresh = self._columns
        self._rows, self._columns = kept
        return fresh

    def _write(self, node: Node) -> None:
        columns, row, facts = self._columns, node.row, node.facts
        node.slots = {gpu.uuid: slot for slot, gpu in enumerate(facts.gpus)}
        columns.labels[row] = {**node.effective_labels, "node": node.name}
        columns.taints[row] = node.taints
        columns.runtimes[row] = facts.runtime
        columns.image_gpus[row] = facts.image_gpus
        columns.last_placement[row] = node.last_placement
        columns.open[row] = node.up and not node.drained
        cpu_milli, memory_mib = node.overcommit.of(facts)
        columns.cpu_total[row] = cpu_milli
        columns.memory_total[row] = memory_mib
        columns.scratch_total[row] = facts.storage_mib
        columns.gpu_count[row] = len(facts.gpus)
        columns.gpu_free[row] = ABSENT
        columns.gpu_model[row] = ABSENT
        for slot, gpu in enumerate(facts.gpus):
            kind = GpuType(gpu.model, gpu.memory_mib, gpu.compute, gpu.mig)
            if kind not in columns.gpu_types:
                columns.gpu_types.append(kind)
                columns.models.append(gpu.model)
            columns.gpu_model[row, slot] = columns.gpu_types.index(kind)
            if node.health_of(gpu) is GpuHealth.OK:
                columns.gpu_free[row, slot] = WHOLE_GPU
        self._write_free(node)

    def _write_free(self, node: Node) -> None:
        """Write the free resources of the node. Its other values in the row must already be up to date. These
        are the total resources, and the GPUs that are marked ABSENT in `gpu_free`.
        """
        columns, row, slots = self._columns, node.row, node.slots
        cpu_milli, memory_mib = columns.cpu_total.item(row), columns.memory_total.item(row)
        scratch_mib = columns.scratch_total.item(row)
        # Use a list, because reading or writing one element of a numpy array takes ten times as long.
        gpus = [ABSENT if free == ABSENT else WHOLE_GPU for free in columns.gpu_free[row].tolist()]
        for allocation in node.unavailable():
            cpu_milli -= allocation.cpu_milli
            memory_mib -= allocation.memory_mib
            scratch_mib -= allocation.scratch_mib
            for hold in allocation.gpus:
                slot = slots.get(hold.uuid)
                if slot is not None and gpus[slot] != ABSENT:
                    gpus[slot] -= hold.milli
        columns.cpu_free[row], columns.memory_free[row] = cpu_milli, memory_mib
        columns.scratch_free[row], columns.gpu_free[row] = scratch_mib, gpus

    def gpu_topology(self) -> GpuTopology:
        """Return the NUMA and NVLink groups of all GPUs. They are computed again after nodes or their
        hardware have changed.
        """
        columns = self.columns
        if self._gpu_topology_at != self.layout_version:
            hosts = [node.facts.gpus for node in self.rows]
            self._gpu_topology, self._gpu_topology_at = (
                GpuTopology(hosts, columns.gpu_free.shape[1]),
                self.layout_version,
            )
        return self._gpu_topology

    def revalue(self) -> None:
        """Mark the values of free GPUs (GpuValue) as out of date, because users now submit other requests."""
        self._gpu_value = None
        self.value_version += 1

    def gpu_value(self) -> GpuValue:
        """Return the values of the free GPUs of all nodes. The values of changed nodes are updated first."""
        columns = self.columns
        layout, seen = self._gpu_value_at
        rows = self.changed_since(seen) if layout == self.layout_version else None
        if self._gpu_value is None or rows is None:
            self._gpu_value = GpuValue(columns, self.demand)
        elif rows:
            self._gpu_value.update(sorted(set(rows)))
        self._gpu_value_at = self.layout_version, self.change_count
        return self._gpu_value

    def may_hold(self, part: PerNodeRequest) -> bool:
        """Return False if no node has enough free resources for the request. True means that a node may have
        enough.

        The request is compared with upper bounds of the free resources of all nodes. While `room_version`
        stays the same, free resources only shrink, so the bounds stay correct. The bounds are computed again
        when `room_version` grows. They are also computed again after changes to an eighth of the nodes,
        because they may have become too high.
        """
        gains, seen = self._max_free_at
        columns = self.columns
        if gains != self.room_version or self.change_count - seen > len(self.by_name) // 8:
            self._max_free = int(columns.cpu_free.max(initial=0)), int(columns.memory_free.max(initial=0))
            self._max_free_gpus = None
            self._max_free_at = (self.room_version, self.change_count)
        max_cpu, max_memory = self._max_free
        if part.cpu_milli > max_cpu or part.memory_mib > max_memory:
            return False
        if not part.gpus and not part.share:
            return True
        if self._max_free_gpus is None:
            gpus = columns.gpu_free
            whole = int((gpus == WHOLE_GPU).sum(axis=1).max(initial=0))
            self._max_free_gpus = whole, int(gpus.max(initial=0))
        max_gpus, max_share = self._max_free_gpus
        return part.gpus <= max_gpus and part.share <= max_share

    @property
    def idle(self) -> NodeTable:
        """The node table in an ideal case: no job runs, all nodes are up, and all GPUs are healthy. A request
        that does not fit here can never start on the cluster.
        """
        if self._idle is None:
            columns = self.columns
            self._idle = replace(
                columns,
                job_affinity=None,
                open=np.ones(columns.height, dtype=np.bool_),
                cpu_free=columns.cpu_total,
                memory_free=columns.memory_total,
                scratch_free=columns.scratch_total,
                gpu_free=np.where(columns.gpu_model == ABSENT, ABSENT, WHOLE_GPU),
            )
        return self._idle
