"""The nodes of the cluster, the resources that jobs hold on them, and the node table, which has the same data
as numpy columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from controller.core.cluster.dataset_reads import DatasetReads
from controller.core.cluster.gpus.gpu_counts import GpuCounts
from controller.core.cluster.gpus.gpu_topology import GpuTopology
from controller.core.cluster.gpus.gpu_value import DemandStats, GpuValue
from controller.core.cluster.job_affinity import JobAffinityIndex
from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.cluster.node import Node
from controller.core.cluster.node_rows import write_free, write_row
from controller.core.cluster.node_table import ABSENT, NodeTable, empty_table
from controller.core.model.allocation import Allocation
from controller.core.model.events.nodes import AS_IT_IS, Overcommit
from controller.core.model.request import PerNodeRequest
from wire.agent.reports import NodeFacts
from wire.names import WHOLE_GPU

CHANGE_LOG_LIMIT = 65_536
VECTORISE_FROM = 12
"""From this number of rows on, one numpy operation on all rows is faster than an operation on each row."""
NO_HEIRS: Mapping[int, int] = {}


class Nodes:
    """All nodes by name, and their NodeTable. Every method that changes a node also updates the table.

    The rows of the table are sorted by node name. Row numbers change only when nodes are added or removed.
    The whole table is then rebuilt once, at the next access. So hundreds of nodes can join with a single
    rebuild.

    Versions. Code that caches a value computed from nodes stores one of these numbers with the value. When
    the number has changed, the value is computed again.
    - `layout_version` grows when row numbers change, or when labels, taints or hardware of a node change. All
      values cached by row number are then invalid.
    - `change_count` is the number of row changes since the start. `changed_since(count)` returns the rows
      that have changed since `change_count` had the value `count`. It returns None if the log of changes does
      not contain all these changes; then all rows must be read again.
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
        """Nominated jobs that the next cycle must check: a node that is kept for such a job has changed since
        the last cycle, so the job may be able to start.
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
        """Upper bounds of the wholly free GPUs of a node, and of the free thousandths of one GPU. None: not
        computed yet. `_max_free` contains the upper bounds of the free CPU and memory of a node.
        """
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
        """Return a copy of all nodes with their allocations and nominations. Callers try placements on the
        copy.
        """
        other = Nodes()
        other._rows = [node.copy() for node in self.rows]
        other.by_name = {node.name: node for node in other._rows}
        other.removed, other.never_connected = set(self.removed), self.never_connected
        other._placements, other.gpu_counts = self._placements, GpuCounts(self.gpu_counts.by_model)
        other.datasets, other.demand = self.datasets, self.demand
        other.job_affinity = self.job_affinity.copy()
        # Copy the node table too, because its computation from the nodes would take most of the time of this
        # copy.
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
        """Add a copy of each node in `others`, without its jobs and nominations."""
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
            write_row(self._columns, node)
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
            write_row(self._columns, node)
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
        nodes, turn = [], self._columns.last_placement
        for allocation in allocations:
            node = self.by_name[allocation.node]
            nodes.append(node)
            node.held[job] = allocation
            self._placements += 1
            node.last_placement = self._placements
            if not self._stale:
                turn[node.row] = self._placements
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
        """Keep these resources for the job until its victims (the jobs preempted for the job) have left the
        node. Also record which jobs are the victims.
        """
        node = self.by_name[allocation.node]
        node.claims[job] = allocation
        for victim in victims:
            if victim in node.held:
                # Do not overwrite an entry. When a running job is moved, the job is its own victim here, and
                # its old resources may already be kept for another job.
                node.leaving.setdefault(victim, job)
        self.claims_to_check.add(job)
        self._rewrite(node)

    def unclaim(self, job: int, name: str, heirs: Mapping[int, int] = NO_HEIRS) -> None:
        """Withdraw the nomination of the job on this node. The node's resources are no longer kept for the
        job.

        A victim (a job that was preempted for this job) may still hold some of the resources. `heirs`
        contains, for some of these victims, the id of another nominated job. From now on, the resources of
        such a victim are kept for the other job. The resources of a victim that is itself nominated for this
        node are kept for the victim.
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
            write_free(self._columns, node)
            self._log_changes((node.row,))
        self.status_version += 1

    def _shift(self, nodes: Sequence[Node], allocations: Sequence[Allocation], sign: int) -> None:
        """Change the free resources in the node table: add allocations (`sign` 1) or subtract allocations
        (`sign` -1). There is one allocation for each node, and each node occurs at most once.
        """
        if self._stale:
            # Write nothing now: the node table is rebuilt at its next access, and includes these allocations
            # then.
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
                # Write the free resources again, because they also depend on the nominations.
                write_free(self._columns, node)
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

        Return None if the log of changes no longer contains all these changes.
        """
        return None if changes < self._log_from else self._log[changes - self._log_from :]

    def refresh(self, node: Node) -> None:
        """Write the node's row in the node table again, after the state of the node or the health of a GPU
        changed.
        """
        self.claims_to_check.update(node.claims)
        if not self._stale:
            write_row(self._columns, node)
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
            write_row(self._columns, node)
        self._stale = False

    def _bind_columns(self) -> None:
        """Set the fields of the node table that are functions, such as `gpu_value`, to methods of this
        object.
        """
        self._columns.gpu_value = self.gpu_value
        self._columns.gpu_topology = self.gpu_topology
        self._columns.job_affinity = lambda: self.job_affinity
        self._columns.dataset_reads = lambda: self.datasets

    def rebuilt_columns(self) -> NodeTable:
        """Return a node table computed from nodes and allocations alone. Tests compare this table with the
        table that is updated in place.
        """
        kept = self._rows, self._columns
        self._lay_out()
        fresh = self._columns
        self._rows, self._columns = kept
        return fresh

    def gpu_topology(self) -> GpuTopology:
        """Return the NUMA and NVLink groups of all GPUs. The groups are computed again after nodes or their
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
        """Drop the values of free GPUs (GpuValue), because users now submit other requests. They are computed
        again when they are needed.
        """
        self._gpu_value = None
        self.value_version += 1

    def gpu_value(self) -> GpuValue:
        """Return the GpuValue: the value of the free GPUs of each node. The values of changed nodes are
        computed again first.
        """
        columns = self.columns
        layout, seen = self._gpu_value_at
        rows = self.changed_since(seen) if layout == self.layout_version else None
        if self._gpu_value is None or rows is None:
            self._gpu_value = GpuValue(columns, self.demand)
        elif rows:
            self._gpu_value.update(sorted(set(rows)))
        self._gpu_value_at = self.layout_version, self.change_count
        return self._gpu_value

    @contextmanager
    def keeping_values(self) -> Iterator[None]:
        """Allow a query to compute the values of free GPUs (GpuValue) within a `with` block. Restore the
        earlier result at the end of the block.

        GpuValue weights requests by the resources that are free when it is computed. If a query computed it
        earlier than the next cycle, this cycle could choose other nodes.
        """
        before = self._gpu_value, self._gpu_value_at
        try:
            yield
        finally:
            self._gpu_value, self._gpu_value_at = before

    def may_hold(self, part: PerNodeRequest) -> bool:
        """Return False if no node has enough free resources for the request. True means that a node may have
        enough.

        The request is compared with upper bounds of the free resources of all nodes. While `room_version`
        stays the same, free resources only shrink, so the bounds stay correct. The bounds are computed again
        when `room_version` grows. After changes to an eighth of the nodes, the bounds are also computed
        again, because they may have become too high.
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
        that does not fit here can never start on the present nodes.
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
