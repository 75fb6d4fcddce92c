"""Nodes: what each has and who holds it, with the columns beside them kept in step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from controller.core.columns import ABSENT, Columns, empty_columns
from controller.core.company import Company
from controller.core.demand import Demand
from controller.core.events import AS_IT_IS, Allocation, Overcommit
from controller.core.health import Condition
from controller.core.marks import Marks
from controller.core.needs import Kind
from controller.core.requests import Part
from controller.core.wiring import Wiring
from controller.core.worth import Worth
from wire.affinity import Taint
from wire.frames import GpuFacts, GpuHold, NodeFacts
from wire.hosts import HostSpec
from wire.words import WHOLE_GPU, GpuHealth, NodeState

LOG_LIMIT = 65_536
MANY = 12
"""From so many rows on one operation on arrays is cheaper than one for each row."""
JUST_STARTED = "the controller has just started"
NOTHING = NodeFacts(cpu_milli=0, memory_mib=0)
NO_HEIRS: Mapping[int, int] = {}


@dataclass(slots=True)
class Node:
    """One node. `held` has an entry per job that holds something here."""

    name: str
    labels: dict[str, str]
    facts: NodeFacts = NOTHING
    overcommit: Overcommit = AS_IT_IS
    up: bool = False
    down: bool = False
    """Away for so long that nobody expects it back soon."""
    drained: bool = False
    why: str = "never connected"
    since: float = 0.0
    boot_id: str = ""
    version: str = ""
    host: HostSpec | None = None
    """The way to it, if an operator added it; the configuration knows the others'."""
    health: dict[str, Condition] = field(default_factory=dict)
    held: dict[int, Allocation] = field(default_factory=dict)
    claims: dict[int, Allocation] = field(default_factory=dict)
    """What is kept for jobs that wait for others to leave, by job."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Jobs that hold something here and are being ended, with the job that has a claim on it."""
    slots: dict[str, int] = field(default_factory=dict)
    row: int = -1
    turn: int = 0
    """The number of its last placement, counted since the controller started."""
    marks: Marks = field(default_factory=Marks)

    @property
    def all_labels(self) -> dict[str, str]:
        """What the agent reports, beneath what the configuration says, beneath what operators set."""
        return self.marks.over_labels({**self.facts.labels, **self.labels})

    @property
    def taints(self) -> tuple[Taint, ...]:
        """What the configuration says, beneath what operators set."""
        return self.marks.over_taints()

    @property
    def expected(self) -> bool:
        """Has it only not been heard of yet, because the controller has just started?"""
        return not self.up and not self.down and self.why == JUST_STARTED

    @property
    def state(self) -> NodeState:
        """Away beats drained: nobody can tell what happens there."""
        if not self.up:
            return NodeState.DOWN if self.down or not self.boot_id else NodeState.SUSPECT
        return NodeState.DRAINED if self.drained else NodeState.UP

    def taken(self) -> Iterator[Allocation]:
        """What cannot be given: what is held; of a claim and what leaves for it, the greater."""
        if not self.claims:
            yield from self.held.values()
            return
        yield from (allocation for job, allocation in self.held.items() if job not in self.leaving)
        for job, claim in self.claims.items():
            yield _greater(claim, [self.held[each] for each, to in self.leaving.items() if to == job])

    def health_of(self, gpu: GpuFacts) -> GpuHealth:
        """Health as recorded last, else as the agent first told."""
        known = self.health.get(gpu.uuid)
        return gpu.health if known is None else known.health

    def condition(self, gpu: GpuFacts) -> Condition:
        """The same, with all that is known of it."""
        return self.health.get(gpu.uuid) or Condition(gpu.health, gpu.why)


def _greater(claim: Allocation, leaving: list[Allocation]) -> Allocation:
    """Of each resource as much as is claimed, or as is still held by those who leave for it."""
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


@dataclass(frozen=True, slots=True)
class Most:
    """The most CPU, memory, whole GPUs and part of one GPU that a single node can give."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    share: int

    def may_hold(self, part: Part) -> bool:
        """False only if no node can hold the part."""
        return (
            part.cpu_milli <= self.cpu_milli
            and part.memory_mib <= self.memory_mib
            and part.gpus <= self.gpus
            and part.share <= self.share
        )


def _most_of(columns: Columns) -> Most:
    if not columns.height:
        return Most(0, 0, 0, 0)
    cpu, memory = int(np.maximum.reduce(columns.cpu_free)), int(np.maximum.reduce(columns.memory_free))
    if not columns.gpu_free.shape[1]:
        return Most(cpu, memory, 0, 0)
    whole = int((columns.gpu_free == WHOLE_GPU).sum(axis=1).max())
    return Most(cpu, memory, whole, int(columns.gpu_free.max()))


class Nodes:
    """All nodes by name, and their columns. Rows move only when a node comes or goes: then all are laid out
    anew, once, when somebody next looks, so that hundreds may join at one go.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Node] = {}
        self.gone: set[str] = set()
        """Removed: what their agents still had to say is heard no more."""
        self.layout = 0
        """Grows when rows move or what a node has by nature changes: caches by row are void."""
        self.changes = 0
        """How many times a row has changed, ever: what caches remember, to ask changed_since()."""
        self.gains = 0
        """Grows when room appears anywhere: what failed before may fit now."""
        self.edition = 0
        """Grows when the worth of all nodes is looked at anew: scores are void, what fits is not."""
        self.turns = 0
        """Grows when a node opens or closes, or the health of a GPU changes."""
        self.stirred: set[int] = set()
        """Jobs with a claim on a node where something happened since the last cycle looked."""
        self.unseen = 0
        """Nodes that never told what they have."""
        self.demand = Demand()
        """What has been asked for so far."""
        self._given = 0
        self.company = Company()
        self._wiring = Wiring((), 0)
        self._wiring_at = -1
        self._worth: Worth | None = None
        self._worth_at = (-1, 0)
        self._log: list[int] = []
        self._log_from = 0
        self._rows: list[Node] = []
        self._columns: Columns = empty_columns(0, 0)
        self._stale = False
        self._idle: Columns | None = None
        self._most = Most(0, 0, 0, 0)
        self._most_at = (-1, -1)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def rows(self) -> list[Node]:
        """The nodes by name: the order of the columns."""
        if self._stale:
            self._lay_out()
        return self._rows

    @property
    def columns(self) -> Columns:
        """What filters and scorers read."""
        if self._stale:
            self._lay_out()
        return self._columns

    def get(self, name: str) -> Node | None:
        """The node of that name, if known."""
        return self.by_name.get(name)

    def copied(self) -> Nodes:
        """The same nodes, on which it can be tried what would fit if: of what is held and kept by now."""
        other = Nodes()
        other.mirror(self)
        for node in self.rows:
            twin = other.by_name[node.name]
            twin.held, twin.claims, twin.leaving = dict(node.held), dict(node.claims), dict(node.leaving)
        other.layout, other.demand, other.company = self.layout, self.demand, self.company.twin()
        return other

    def insert(self, node: Node) -> None:
        """A node that was not known."""
        self.by_name[node.name] = node
        self.gone.discard(node.name)
        self.unseen += not node.boot_id
        self._renew(stale=True)

    def mirror(self, others: Nodes) -> None:
        """The same nodes, with nobody on them."""
        for node in others:
            plain: dict[str, Any] = {"held": {}, "claims": {}, "leaving": {}, "slots": {}, "row": -1}
            self.insert(replace(node, labels=dict(node.labels), health=dict(node.health), **plain))
        self.gone, self._given = set(others.gone), others._given

    def remove(self, node: Node) -> None:
        """A node that nobody holds anything of."""
        del self.by_name[node.name]
        self.gone.add(node.name)
        self.unseen -= not node.boot_id
        self._renew(stale=True)

    def label(self, node: Node, labels: Mapping[str, str], marks: Marks) -> None:
        """The configuration or an operator gave a node other labels or taints."""
        node.labels, node.marks = dict(labels), marks
        if not self._stale:
            self._write(node)
        self._renew()

    def equip(self, node: Node, facts: NodeFacts, boot_id: str, overcommit: Overcommit = AS_IT_IS) -> None:
        """The node told what it has."""
        self.unseen -= not node.boot_id
        same = node.facts == facts and node.overcommit == overcommit
        node.facts, node.boot_id, node.overcommit = facts, boot_id, overcommit
        if same:
            self.refresh(node)
        elif self._stale or len(facts.gpus) > self._columns.gpu_free.shape[1]:
            self._renew(stale=True)
        else:
            self._write(node)
            self._renew()

    def _renew(self, *, stale: bool = False) -> None:
        """What was worked out by row is void, and there may be room."""
        self._stale = self._stale or stale
        self._idle = None
        self._columns.known.clear()
        self._columns.codes.clear()
        self._forget_changes()
        self.layout += 1
        self.gains += 1

    def models(self, name: str) -> dict[str, str]:
        """The model of each GPU of a node."""
        return {gpu.uuid: gpu.model for gpu in self.by_name[name].facts.gpus}

    def hold(self, job: int, allocations: Sequence[Allocation]) -> None:
        """Take what the job gets out of the room of its nodes."""
        nodes = [self.by_name[allocation.node] for allocation in allocations]
        turn = self._columns.turn
        for given, (node, allocation) in enumerate(zip(nodes, allocations, strict=True), self._given + 1):
            node.held[job] = allocation
            node.turn = given
            if not self._stale:
                turn[node.row] = given
        self._given += len(nodes)
        self._shift(nodes, allocations, -1)

    def free(self, job: int, names: Iterable[str]) -> None:
        """Give back what the job holds on these nodes."""
        nodes = [self.by_name[name] for name in names]
        allocations = [node.held.pop(job) for node in nodes]
        for node in nodes:
            claimant = node.leaving.pop(job, None) if node.leaving else None
            if claimant is not None:
                self.stirred.add(claimant)
        self._shift(nodes, allocations, 1)
        self.gains += 1

    def claim(self, job: int, allocation: Allocation, victims: Iterable[int]) -> None:
        """Keep this for the job; those victims that hold something here leave for its sake."""
        node = self.by_name[allocation.node]
        node.claims[job] = allocation
        for victim in victims:
            if victim in node.held:
                node.leaving.setdefault(victim, job)  # who is moved leaves for whoever gets its place
        self.stirred.add(job)
        self._rewrite(node)

    def unclaim(self, job: int, name: str, heirs: Mapping[int, int] = NO_HEIRS) -> None:
        """Keep nothing there for the job any longer; who left for it leaves for its heir, if there is one."""
        node = self.by_name[name]
        del node.claims[job]
        for victim in [victim for victim, claimant in node.leaving.items() if claimant == job]:
            heir = victim if victim != job and victim in node.claims else heirs.get(victim)
            if heir is not None:
                node.leaving[victim] = heir
            else:
                del node.leaving[victim]
        self._rewrite(node)
        self.gains += 1

    def _rewrite(self, node: Node) -> None:
        """Who will have what changed: promises made before do not hold."""
        if not self._stale:
            self._write(node)
            self._touch((node.row,))
        self.turns += 1

    def _shift(self, nodes: Sequence[Node], allocations: Sequence[Allocation], sign: int) -> None:
        """Give back (1) or take (-1) what is held on each of these different nodes."""
        if self._stale:
            return  # laying out will count it
        cpu, memory, gpus = self._columns.cpu_free, self._columns.memory_free, self._columns.gpu_free
        rows = [node.row for node in nodes]
        if len(rows) < MANY:
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
                self._write(node)  # what is claimed there counts as well
        self._touch(rows)

    def _touch(self, rows: Sequence[int]) -> None:
        if len(self._log) + len(rows) > LOG_LIMIT:
            self._forget_changes()
        self._log.extend(rows)
        self.changes += len(rows)

    def _forget_changes(self) -> None:
        self._log.clear()
        self._log_from = self.changes

    def changed_since(self, changes: int) -> list[int] | None:
        """The rows that changed since then, oldest first; None if that is too long ago to be known."""
        return None if changes < self._log_from else self._log[changes - self._log_from :]

    def refresh(self, node: Node) -> None:
        """The node opened, closed, or a GPU's health changed: write its row anew."""
        self.stirred.update(node.claims)
        if not self._stale:
            self._write(node)
            self._touch((node.row,))
        self.turns += 1
        self.gains += 1

    def _lay_out(self) -> None:
        self._rows = sorted(self.by_name.values(), key=lambda node: node.name)
        width = max((len(node.facts.gpus) for node in self._rows), default=0)
        self._columns = empty_columns(len(self._rows), width)
        self._columns.worth = self.worth
        self._columns.wiring = self.wiring
        self._columns.company = self._companions
        for row, node in enumerate(self._rows):
            node.row = row
            self._write(node)
        self._stale = False

    def fresh_columns(self) -> Columns:
        """The columns as the nodes and allocations say, worked out from nothing."""
        kept = self._rows, self._columns
        self._lay_out()
        fresh = self._columns
        self._rows, self._columns = kept
        return fresh

    def _write(self, node: Node) -> None:
        columns, row, facts = self._columns, node.row, node.facts
        node.slots = {gpu.uuid: slot for slot, gpu in enumerate(facts.gpus)}
        columns.labels[row] = {**node.all_labels, "node": node.name}
        columns.taints[row] = node.taints
        columns.runtimes[row] = facts.runtime
        columns.turn[row] = node.turn
        columns.open[row] = node.up and not node.drained
        cpu_milli, memory_mib = node.overcommit.of(facts)
        columns.cpu_total[row] = cpu_milli
        columns.memory_total[row] = memory_mib
        columns.scratch_total[row] = columns.scratch_free[row] = facts.storage_mib
        columns.gpu_count[row] = len(facts.gpus)
        columns.gpu_free[row] = ABSENT
        columns.gpu_model[row] = ABSENT
        for slot, gpu in enumerate(facts.gpus):
            kind = Kind(gpu.model, gpu.memory_mib, gpu.compute, gpu.mig)
            if kind not in columns.kinds:
                columns.kinds.append(kind)
                columns.models.append(gpu.model)
            columns.gpu_model[row, slot] = columns.kinds.index(kind)
            if node.health_of(gpu) is GpuHealth.OK:
                columns.gpu_free[row, slot] = WHOLE_GPU
        columns.cpu_free[row] = cpu_milli
        columns.memory_free[row] = memory_mib
        for allocation in node.taken():
            columns.cpu_free[row] -= allocation.cpu_milli
            columns.memory_free[row] -= allocation.memory_mib
            columns.scratch_free[row] -= allocation.scratch_mib
            for hold in allocation.gpus:
                held_slot = node.slots.get(hold.uuid)
                if held_slot is not None and columns.gpu_free[row, held_slot] != ABSENT:
                    columns.gpu_free[row, held_slot] -= hold.milli

    def _companions(self) -> Company:
        return self.company

    def meet(self, part: Part, node: str) -> None:
        """A job whose place matters to others has come to a node: what waits for it may fit now."""
        self.company.enter(part, node)
        self.gains += 1

    def wiring(self) -> Wiring:
        """How the GPUs of all nodes are connected."""
        columns = self.columns
        if self._wiring_at != self.layout:
            hosts = [node.facts.gpus for node in self.rows]
            self._wiring, self._wiring_at = Wiring(hosts, columns.gpu_free.shape[1]), self.layout
        return self._wiring

    def reappraise(self) -> None:
        """What people ask for has changed enough to look at the worth of all nodes anew."""
        self._worth = None
        self.edition += 1

    def worth(self) -> Worth:
        """The worth of all nodes as they are."""
        columns = self.columns
        layout, seen = self._worth_at
        rows = self.changed_since(seen) if layout == self.layout else None
        if self._worth is None or rows is None:
            self._worth = Worth(columns, self.demand)
        elif rows:
            self._worth.update(sorted(set(rows)))
        self._worth_at = self.layout, self.changes
        return self._worth

    @property
    def most(self) -> Most:
        """An upper bound on what any node has free: what asks for more need not look.

        Room only shrinks until `gains` grows, so an old bound stays true; it is worked out anew once enough
        rows have changed to be worth it.
        """
        gains, seen = self._most_at
        if gains != self.gains or self.changes - seen > len(self.rows) // 8:
            self._most = _most_of(self.columns)
            self._most_at = (self.gains, self.changes)
        return self._most

    @property
    def idle(self) -> Columns:
        """The same nodes with nobody on them, all open and well: what could ever be."""
        if self._idle is None:
            columns = self.columns
            self._idle = replace(
                columns,
                company=None,
                open=np.ones(columns.height, dtype=np.bool_),
                cpu_free=columns.cpu_total,
                memory_free=columns.memory_total,
                scratch_free=columns.scratch_total,
                gpu_free=np.where(columns.gpu_model == ABSENT, ABSENT, WHOLE_GPU),
            )
        return self._idle
