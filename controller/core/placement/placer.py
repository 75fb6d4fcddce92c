"""Chooses nodes and GPUs for a request: the number of nodes, the nodes, and the GPUs on each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.gpus.gpu_requirements import gpu_needs_of, milli_of_models
from controller.core.cluster.network_tree import NetworkTree
from controller.core.cluster.node import Node
from controller.core.cluster.node_table import Bools
from controller.core.cluster.nodes import Nodes
from controller.core.cluster.topology_domains import TopologyDomains
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.framework.unfiltered_constraints import first_unfiltered
from controller.core.model.allocation import Allocation
from controller.core.model.dataclass import dataclass
from controller.core.model.job import NEVER
from controller.core.model.request import PerNodeRequest, ResourceRequest
from controller.core.placement.gpu_selection import NO_GPUS, GpuChoice, choose_gpus, quality_of
from controller.core.placement.one_gpu_model import GpuModelGroups, model_by_row
from controller.core.placement.ranking import NodeRanking, filters_for, rows_possible
from controller.core.quota.usage_counters import Amount, UsageCounters
from wire.job.placement.gpu_requirements import Topology

MAX_CACHED = 4_096
ALL_FREE: Mapping[int, FreeResources] = {}


@dataclass(frozen=True, slots=True)
class Placement:
    """The allocations of a job, one for each node. `quality` is from 50 to 150 (see `quality_of`)."""

    allocations: tuple[Allocation, ...]
    quality: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How a request is divided among nodes: the resources `part` on each of `nodes` nodes."""

    part: PerNodeRequest
    nodes: int
    topology: Topology | None = None
    one_model: bool = False

    def fewest(self, ask: ResourceRequest) -> int:
        """Return the least number of nodes on which a job with this shape and the request `ask` may start. A
        job that requires topology domains starts on all its nodes only.
        """
        return self.nodes if ask.least is None or self.topology_required else min(ask.least, self.nodes)

    @property
    def topology_required(self) -> bool:
        """True if all nodes must be in one topology domain. False if the job only prefers this, or has no
        topology.
        """
        return self.topology is not None and not self.topology.prefer


@lru_cache(maxsize=65_536)
def _bare(node: str, cpu_milli: int, memory_mib: int, scratch_mib: int) -> Allocation:
    """Return an allocation without GPUs. It is cached, because jobs often get equal allocations on a node."""
    return Allocation(node, cpu_milli, memory_mib, scratch_mib=scratch_mib)


class Placer:
    """Finds placements (nodes and GPUs for jobs). A Placer stores only caches, which can be computed again
    from the nodes.

    Algorithm (`find`)
    1. Find the number of nodes for the request (`shape`). It is computed once for each request, and again
       when nodes are added, removed or changed.
    2. Stop if no node has enough free CPU, memory or GPUs (`Nodes.may_hold`), or if the request fits on too
       few nodes.
    3. Choose the nodes with the best scores. The nodes are in one topology domain if the request prefers or
       requires this. If the request only prefers one domain and no domain has enough nodes, choose from all
       nodes. With `one_model`, all nodes have GPUs of one model. With [topology], the nodes of a gang without
       a domain are also near each other (`NetworkTree`).
    4. Choose GPUs on each node (`choose_gpus`).

    Cost: O(nodes that have changed since the last placement of a job with the same request), see NodeRanking.
    A request that does not fit takes two comparisons.

    Example: 8 nodes with 8 GPUs, and a request for 16 GPUs without a number of nodes. One node cannot hold 16
    GPUs, but two nodes can. The shape is 8 GPUs on each of 2 nodes, and the placement is the two best nodes
    with 8 free GPUs.
    """

    def __init__(self, nodes: Nodes, pipeline: SchedulingPolicy) -> None:
        self.nodes = nodes
        self.pipeline = pipeline
        self._rankings: dict[PerNodeRequest, NodeRanking] = {}
        self._originals: Mapping[PerNodeRequest, NodeRanking] = {}
        """The rankings of another placer, which are copied before their first use (`for_query`)."""
        self._shapes: dict[ResourceRequest, tuple[int, Shape | None]] = {}
        self._domains: dict[Topology, tuple[int, TopologyDomains]] = {}
        self._models_of: dict[PerNodeRequest, tuple[int, list[str] | None]] = {}
        self._network: tuple[int, NetworkTree] | None = None

    def for_query(self) -> Placer:
        """Return a placer for a query. It chooses the same nodes as this placer, but leaves the scores of
        this placer as they are.

        The scores of a node are computed when they are needed and the node has changed, with the value of
        free GPUs at that time. If a query computed them earlier, later cycles could choose other nodes.
        """
        other = copy(self)
        other._rankings, other._originals = {}, self._rankings
        return other

    def clear_rankings(self) -> None:
        """Drop all cached rankings (nodes and scores for each request), because filters and scorers may now
        give other results.
        """
        self._rankings.clear()

    def ranking(self, part: PerNodeRequest) -> NodeRanking:
        """Return the ranking of a request: the nodes on which the request fits now, and their scores. First
        update the cached ranking.
        """
        ranking = self._rankings.get(part) or self._new_ranking(part)
        ranking.update()
        return ranking

    def _new_ranking(self, part: PerNodeRequest) -> NodeRanking:
        if len(self._rankings) >= MAX_CACHED:
            self._rankings.clear()
        known = self._originals.get(part)
        ranking = NodeRanking(part, self.nodes, self.pipeline) if known is None else known.copy()
        self._rankings[part] = ranking
        return ranking

    def possible(self, part: PerNodeRequest) -> Bools:
        """Return which nodes (True by row number) could hold the request without running jobs."""
        return (self._rankings.get(part) or self._new_ranking(part)).possible

    def shape(self, ask: ResourceRequest) -> Shape | None:
        """Return the number of nodes on which the request is placed, and the request for each node. Return
        None if the request can never fit.

        If the request names no number of nodes, use the smallest number of nodes that could hold the request
        without running jobs. With `--min-nodes`, use the greatest number between `--min-nodes` and `--nodes`.
        """
        known = self._shapes.get(ask)
        if known is None or known[0] != self.nodes.layout_version:
            if len(self._shapes) >= MAX_CACHED:
                self._shapes.clear()
            known = self._shapes[ask] = (self.nodes.layout_version, self._find_shape(ask))
        return known[1]

    def _find_shape(self, ask: ResourceRequest) -> Shape | None:
        """Compute the result of `shape` from the nodes whose taints the request tolerates. If these nodes
        cannot hold the request, compute the result from all nodes. Thus a request that only tainted nodes can
        hold waits and is not refused, because taints may be removed.
        """
        if not len(self.nodes) or self.unsupported_request(ask.part):
            return None
        found = self._fewest(ask, self.possible)
        if found is None and any(self.nodes.columns.taints):
            bare = replace(self.nodes.idle, taints=[()] * len(self.nodes))
            return self._fewest(ask, lambda part: rows_possible(part, bare, filters_for(part, self.pipeline)))
        return found

    def unsupported_request(self, part: PerNodeRequest) -> str | None:
        """Return a field of the request that no configured filter checks; None if all fields are checked.

        A job with such a field never fits, because no filter can decide which nodes are suitable.
        """
        return first_unfiltered(self.pipeline.filters, part)

    def _fewest(self, ask: ResourceRequest, holds: Callable[[PerNodeRequest], Bools]) -> Shape | None:
        counts: Sequence[int]
        if ask.nodes is None:
            counts = range(1, min(ask.part.gpus, len(self.nodes)) + 1)
        else:
            # Try the greatest number of nodes first, because a job with `--min-nodes` gets as many as
            # possible.
            counts = range(ask.nodes, (ask.least or ask.nodes) - 1, -1)
        for count in counts:
            part = ask.split(count)
            if part is None:
                continue
            mask = holds(part)
            if int(np.count_nonzero(mask)) < count:
                continue
            shape = Shape(part, count, ask.topology if count > 1 else None, ask.one_model and count > 1)
            domains = self.required_grouping(shape)
            if domains is None or domains.spare_rows(mask.nonzero()[0], count) >= 0:
                return shape
        return None

    def domains(self, topology: Topology) -> TopologyDomains:
        """Return the domain of each node for this topology. The result is cached until nodes are added or
        changed.
        """
        known = self._domains.get(topology)
        if known is None or known[0] != self.nodes.layout_version:
            columns = self.nodes.columns
            known = self._domains[topology] = (
                self.nodes.layout_version,
                TopologyDomains(topology, columns.labels),
            )
        return known[1]

    @property
    def network(self) -> NetworkTree | None:
        """The tree of switches above the nodes; None without [topology]."""
        topology = self.pipeline.network
        if topology is None:
            return None
        if self._network is None or self._network[0] != self.nodes.layout_version:
            columns = self.nodes.columns
            self._network = self.nodes.layout_version, NetworkTree(topology, columns.labels)
        return self._network[1]

    def nearness_of(self, shape: Shape) -> NetworkTree | None:
        """Return the tree of switches for a gang whose nodes should be near each other. Return None for a job
        on one node, for a gang that must be in one topology domain, or without [topology].
        """
        return None if shape.nodes < 2 or shape.topology_required else self.network

    def best_rows(self, shape: Shape, nodes: int, barred: Bools | None = None) -> list[int]:
        """Return the row numbers of the `nodes` best nodes for a request that needs no topology domain, in
        ascending order. If the request fits on fewer nodes, return all nodes on which it fits.
        """
        ranking, near = self.ranking(shape.part), self.nearness_of(shape)
        if near is None:
            return ranking.best(nodes, barred)
        free = ranking.count if barred is None else int(np.count_nonzero(ranking.fits & ~barred))
        return ranking.best_group(min(nodes, free), near, barred)

    def required_grouping(self, shape: Shape) -> TopologyDomains | GpuModelGroups | None:
        """Return the groups of nodes if all nodes of the job must be in one group; otherwise None.

        A group is a topology domain that the job requires, or the nodes with one GPU model.
        """
        lie = self.domains(shape.topology) if shape.topology is not None and shape.topology_required else None
        models = self._models(shape)
        return lie if models is None else GpuModelGroups(models, lie or self.nearness_of(shape))

    def _models(self, shape: Shape) -> list[str] | None:
        """Return the GPU model of each node. Return None if the nodes need no grouping by model: the job may
        use several models, or only one model suits the job.
        """
        if not shape.one_model or len(self.nodes.columns.models) < 2:
            return None
        known = self._models_of.get(shape.part)
        if known is None or known[0] != self.nodes.layout_version:
            if len(self._models_of) >= MAX_CACHED:
                self._models_of.clear()
            found = model_by_row(shape.part, self.nodes.columns)
            known = self._models_of[shape.part] = (
                self.nodes.layout_version,
                found if len({*found} - {""}) > 1 else None,
            )
        return known[1]

    def possible_nodes(self, part: PerNodeRequest) -> Bools:
        """Return which nodes (True by row number) accept jobs now and could hold the request without running
        jobs.
        """
        return self.possible(part) & self.nodes.columns.open

    def find(self, ask: ResourceRequest, barred: Bools | None = None) -> Placement | None:
        """Return the best placement (nodes and GPUs) on resources that are free now. Return None if there is
        none.

        `barred` is True for each node that must not be used (by row number).
        """
        shape = self.shape(ask)
        if shape is None or not self.nodes.may_hold(shape.part):
            return None
        ranking, rows = self.ranking(shape.part), []
        if ranking.count < shape.nodes:
            return None
        if shape.nodes == 1:
            rows = ranking.best(1, barred)
            return self.allocate_rows(shape, rows) if rows else None
        if shape.topology is not None:
            lie, models = self.domains(shape.topology), self._models(shape)
            wanted = lie if models is None else GpuModelGroups(models, lie)
            rows = ranking.best_group(shape.nodes, wanted, barred)
        if shape.topology is None or (shape.topology.prefer and not rows):
            models = self._models(shape) if shape.one_model else None
            if models is None:
                rows = self.best_rows(shape, shape.nodes, barred)
            else:
                groups = GpuModelGroups(models, self.nearness_of(shape))
                rows = ranking.best_group(shape.nodes, groups, barred)
        return self.allocate_rows(shape, rows) if len(rows) == shape.nodes else None

    def fits(self, ask: ResourceRequest) -> bool:
        """Return whether the request fits on the free resources now. Free nodes that are reserved for other
        jobs or users count as well.
        """
        shape = self.shape(ask)
        if shape is None:
            return False
        ranking, domains = self.ranking(shape.part), self.required_grouping(shape)
        if domains is None:
            return ranking.count >= shape.nodes
        return domains.spare_rows(np.flatnonzero(ranking.fits), shape.nodes) >= 0

    def max_nodes(self, part: PerNodeRequest) -> int:
        """Return an upper bound on the number of nodes on which the request fits now. The bound is computed
        from cached values, without calling filters.
        """
        ranking = self._rankings.get(part)
        return len(self.nodes) if ranking is None else ranking.max_count

    def find_fewer(
        self, ask: ResourceRequest, barred: Bools | None = None, most: int | None = None
    ) -> Placement | None:
        """Return a placement for an elastic job (`--min-nodes`) on as many nodes as possible, but at most
        `most`. Return None if fewer nodes are free than `--min-nodes`, and for a job that must be in one
        topology domain.
        """
        shape = self.shape(ask)
        if shape is None or ask.least is None or shape.topology_required:
            return None
        domains, wanted = (
            self.required_grouping(shape),
            shape.nodes if most is None else min(shape.nodes, most),
        )
        for nodes in range(wanted, ask.least - 1, -1) if domains is not None else ():
            rows = self.ranking(shape.part).best_group(nodes, domains, barred) if domains is not None else []
            if rows:
                return self.allocate_rows(replace(shape, nodes=nodes), rows)
        if domains is not None:
            return None
        rows = self.best_rows(shape, wanted, barred)
        return self.allocate_rows(replace(shape, nodes=len(rows)), rows) if len(rows) >= ask.least else None

    def still_fits(self, ask: ResourceRequest, placement: Placement, barred: Bools | None = None) -> bool:
        """Return whether all filters still accept the nodes of the placement, its GPUs are still free, and
        none of its nodes is `barred` (True by row number).
        """
        shape = self.shape(ask)
        rows = [self.nodes.by_name[allocation.node].row for allocation in placement.allocations]
        if shape is None or (barred is not None and barred[rows].any()):
            return False
        return bool(self.ranking(shape.part).fits[rows].all()) and all(
            map(self._gpus_free, placement.allocations)
        )

    def _gpus_free(self, allocation: Allocation) -> bool:
        """Return whether the GPUs of the allocation are free. Filters do not check this, because they only
        count the free GPUs of a node.
        """
        node, free = self.nodes.by_name[allocation.node], self.nodes.columns.gpu_free
        slots = [(node.slots.get(hold.uuid), hold.milli) for hold in allocation.gpus]
        return all(slot is not None and free[node.row, slot] >= milli for slot, milli in slots)

    def allocate(
        self, part: PerNodeRequest, node: Node, room: FreeResources | None = None
    ) -> tuple[Allocation, GpuChoice]:
        """Return the allocation for a request on a node, with the choice of GPUs.

        The GPUs are chosen from the resources `room`; None means the resources that are free on the node now.
        """
        choice = NO_GPUS
        if part.wants_gpus:
            columns = self.nodes.columns
            if room is None:
                free, kinds = columns.gpu_free[node.row].tolist(), columns.gpu_model[node.row].tolist()
            else:
                free, kinds = room.gpus, room.models
            pick = partial(self.pipeline.picker.pick, part, columns, node.row)
            choice = choose_gpus(node, free, kinds, part, columns, pick)
        if choice is NO_GPUS:
            return _bare(node.name, part.cpu_milli, part.memory_mib, part.scratch_mib), choice
        gpus, numa = choice.gpus, choice.numa
        return Allocation(node.name, part.cpu_milli, part.memory_mib, gpus, numa, part.scratch_mib), choice

    def allocate_rows(
        self, shape: Shape, rows: list[int], rooms: Mapping[int, FreeResources] = ALL_FREE
    ) -> Placement:
        """Return a placement on the nodes with the row numbers `rows`.

        For a row in `rooms`, choose GPUs from the resources in `rooms`. For any other row, choose GPUs from
        the resources that are free now.
        """
        nodes, part = self.nodes.rows, shape.part
        # For a job without GPUs, make the placement here, because this is faster than the code below and
        # gives the same result.
        if not part.wants_gpus:
            amounts = part.cpu_milli, part.memory_mib, part.scratch_mib
            bare = tuple(_bare(nodes[row].name, *amounts) for row in rows)
            return Placement(bare, quality_of([NO_GPUS] * len(rows)))
        allocations, choices = [], []
        for row in rows:
            allocation, choice = self.allocate(part, nodes[row], rooms.get(row))
            allocations.append(allocation)
            choices.append(choice)
        return Placement(tuple(allocations), quality_of(choices))


def quota_need(
    placer: Placer,
    ask: ResourceRequest,
    limit_s: float | None,
    counters: UsageCounters,
    fewer: int | None = None,
) -> Amount:
    """Return the most that a job with this request can add to the quota usage of its tenants. GPUs are
    counted for a GPU model only if all GPUs that suit the job are of this model.

    `fewer` is the number of nodes on which an elastic job starts, if this number is less than `--nodes`.
    """
    shape = placer.shape(ask)
    part, nodes = (shape.part, shape.nodes) if shape else (ask.part, ask.nodes or 1)
    nodes = nodes if fewer is None else min(nodes, fewer)
    gpu_milli = gpu_needs_of(part, placer.nodes.columns).max_milli * nodes
    limit = NEVER if limit_s is None else limit_s
    cpu_milli, memory_mib = part.cpu_milli + ask.beyond[0], part.memory_mib + ask.beyond[1]
    gpu_time = round(gpu_milli * min(limit, counters.window_s))
    of_models = milli_of_models(part, placer.nodes.columns, counters.models, nodes)
    return cpu_milli * nodes, memory_mib * nodes, gpu_milli, 1, 0, gpu_time, *of_models
