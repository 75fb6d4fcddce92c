"""A machine pool in memory whose faults a test sets, and a controller's part around it in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.cluster.node import Node, TimedDrain
from controller.engines.contract import EngineScope, EngineUnavailable, ForeignNode, Offer
from controller.engines.driver.driver import EngineDriver
from controller.engines.driver.driver_rules import DriverRules, Journal
from controller.engines.driver.foreign_nodes import ForeignNodes, NodeActions
from controller.engines.driver.record_files import RecordFiles
from controller.engines.pools.keeper import PoolNodes
from controller.engines.pools.machine_pool import (
    Machine,
    MachineList,
    MachineOrder,
    MachinePool,
    MachineShape,
    MachineState,
    NoCapacity,
    PoolOptions,
)
from controller.engines.pools.pool_driver import PoolDriver
from controller.engines.pools.pool_engine import PoolEngine, offer_of
from controller.engines.pools.scale_out import Demand, ScaleOut
from tests.controller.engines.fake_engine import PREFIX

INTERVAL = 10.0
SHAPES = (
    MachineShape(name="small", cpus=8, memory="32G", price=1.0, boot_s=60.0),
    MachineShape(
        name="large",
        cpus=64,
        memory="512G",
        price=20.0,
        gpus=8,
        gpu_model="H100",
        gpu_memory="80G",
        boot_s=60.0,
    ),
)


class Killed(BaseException):
    """The controller was killed within a call of the pool."""


@dataclass
class Cloud:
    """The machines behind the pool. They outlive the controller."""

    machines: list[Machine] = field(default_factory=list)
    offers: tuple[Offer, ...] = tuple(offer_of(shape, zone) for shape in SHAPES for zone in ("a", "b"))
    full: set[tuple[str, str]] = field(default_factory=set)
    fails: str = ""
    answer_lost: bool = False
    order_lost: bool = False
    unlisted: int = 0
    """The number of coming looks that do not show any machine."""
    complete: bool = True
    creates: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    kill_at: int = -1
    """The number of the call, counted from 0, in which the controller is killed: before its effect if the
    number is even, after its effect if the number is odd.
    """
    calls: int = 0
    most_at_once: int = 0

    def step(self) -> None:
        """Count a step, and kill the controller if its number is `kill_at`."""
        self.calls += 1
        if self.calls - 1 == self.kill_at:
            raise Killed

    def change(self, ref: str, **facts: object) -> None:
        self.machines = [
            replace(each, **facts) if each.ref == ref else each  # type: ignore[arg-type]
            for each in self.machines
        ]

    @property
    def running(self) -> list[Machine]:
        return [each for each in self.machines if each.state is not MachineState.ENDED]


class CloudPool(MachinePool):
    """A pool on a Cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    async def machines(self) -> MachineList:
        if self.cloud.fails:
            raise EngineUnavailable(self.cloud.fails)
        if self.cloud.unlisted:
            self.cloud.unlisted -= 1
            return MachineList(True, ())
        return MachineList(self.cloud.complete, tuple(self.cloud.machines))

    async def create(self, order: MachineOrder) -> str:
        cloud, offer = self.cloud, order.offer
        cloud.step()
        if cloud.order_lost:
            raise EngineUnavailable("the order was lost")
        if (offer.shape, offer.zone) in cloud.full:
            raise NoCapacity("InsufficientInstanceCapacity")
        ref = f"i-{len(cloud.machines)}"
        cloud.machines.append(
            Machine(
                ref,
                order.token,
                MachineState.STARTING,
                f"10.0.0.{len(cloud.machines)}",
                offer.shape,
                offer.zone,
            )
        )
        cloud.creates.append(order.token)
        cloud.most_at_once = max(cloud.most_at_once, len(cloud.running))
        cloud.step()
        if cloud.answer_lost:
            raise EngineUnavailable("the answer was lost")
        return ref

    async def end(self, ref: str) -> None:
        self.cloud.step()
        self.cloud.ends.append(ref)
        self.cloud.change(ref, state=MachineState.ENDED)
        self.cloud.step()

    async def offers(self) -> tuple[Offer, ...]:
        return self.cloud.offers


class PoolRig:
    """The drivers of one pool with virtual time, and the nodes of the cluster as a dict. `demand` is the
    answer of what-if, by shape.
    """

    def __init__(self, directory: Path, cloud: Cloud | None = None, **options: object) -> None:
        self.cloud = cloud or Cloud()
        self.directory = directory
        self.options = PoolOptions(**options)  # type: ignore[arg-type]
        self.now = 86_400.0 * 100
        self.acts = True
        self.waiting = True
        self.demand: dict[str, Demand] = {}
        self.asked: list[tuple[int, list[str]]] = []
        """For each question to what-if: the number of pending nodes, and the offers."""
        self.nodes: dict[str, Node] = {}
        self.lost: list[str] = []
        self.removed: list[str] = []
        self.open()

    def pool(self) -> MachinePool:
        return CloudPool(self.cloud)

    def open(self) -> None:
        """Make the drivers from the files, as a controller does at its start."""
        files = RecordFiles(self.directory)
        files.prepare()
        scope = EngineScope("burst", PREFIX, str(self.directory), 30.0, INTERVAL, lambda: self.now)
        engine = PoolEngine(self.pool(), self.options, scope)
        journal = Journal(lambda: self.now, lambda job, attempt, rank: None, lambda: self.acts)
        names = ForeignNodes("burst", {}, self._actions())
        rules = DriverRules(interval_s=INTERVAL)
        self.driver = EngineDriver("burst", engine, rules, files, journal, names, PREFIX)
        nodes = PoolNodes(
            names.node_name,
            self.nodes.get,
            self._drain_by,
            self._declare_lost,
            self._remove,
            "engine burst: ",
        )
        self.pools = PoolDriver(
            engine,
            nodes,
            self.driver.runner,
            lambda budget, back_off: ScaleOut(
                "burst",
                self.options,
                engine.fleet,
                budget,
                back_off,
                self._simulate,
                {},
                (),
                lambda: self.now,
            ),
            lambda: self.acts,
            lambda: self.waiting,
        )
        self.fleet = engine.fleet

    async def restart(self) -> None:
        """Kill the controller, and start another one on the same files."""
        await self.driver.close()
        for node in self.nodes.values():
            node.up = False
        self.open()

    async def round(self, seconds: float = INTERVAL) -> None:
        """Let an interval pass: boot machines, connect agents, look, and do the steps that are due."""
        self.now += seconds
        for each in self.cloud.machines:
            if each.state is MachineState.STARTING:
                self.cloud.change(each.ref, state=MachineState.RUNNING)
        if self.driver.breaker.may_look(self.now):
            await self.driver.run_round()
        running = {self._name(each) for each in self.cloud.machines if each.state is MachineState.RUNNING}
        for name, node in self.nodes.items():
            node.up = name in running
            node.boot_id = "b"
        await self.pools.round()
        await self.driver.runner.idle()

    async def rounds(self, count: int, seconds: float = INTERVAL) -> None:
        for _ in range(count):
            await self.round(seconds)

    async def joined(self) -> Node:
        """Order one small machine, and return its node when its agent is connected."""
        self.demand = {"small": Demand(1, 1, "vision")}
        await self.rounds(2)
        self.demand = {}
        await self.rounds(2)
        [node] = self.nodes.values()
        assert node.up
        return node

    def _name(self, machine: Machine) -> str:
        return f"burst-{machine.token.removeprefix(PREFIX)}"

    def _actions(self) -> NodeActions:
        async def add(name: str, foreign: ForeignNode) -> bool:
            self.nodes.setdefault(name, Node(name, dict(foreign.facts.labels)))
            return True

        async def remove(name: str) -> None:
            await self._remove(name)

        async def drain(name: str, why: str) -> None:
            self.nodes[name].drained, self.nodes[name].why = True, why

        async def resume(name: str) -> None:
            self.nodes[name].drained, self.nodes[name].why = False, ""

        return NodeActions(
            add,
            remove,
            drain,
            resume,
            lambda name, node: None,
            lambda name: None,
            lambda name: self.nodes.get(name),
        )

    async def _drain_by(self, name: str, why: str, empty_by: float) -> None:
        self.nodes[name].timed_drain = TimedDrain(empty_by, "engine burst", why)

    async def _declare_lost(self, name: str) -> None:
        assert not self.nodes[name].up
        self.nodes[name].held.clear()
        self.lost.append(name)

    async def _remove(self, name: str) -> bool:
        if self.nodes[name].held:
            return False
        del self.nodes[name]
        self.removed.append(name)
        return True

    async def _simulate(
        self, pending: tuple[HypotheticalNodes, ...], asked: tuple[HypotheticalNodes, ...], within_s: float
    ) -> tuple[Demand, ...]:
        shapes = [each.facts.labels["shape"] for each in asked]
        self.asked.append((len(pending), shapes))
        nothing = Demand(0, 0, "")
        return tuple(
            replace(found, needed=max(0, min(each.most, found.needed - len(pending))))
            for each, shape in zip(asked, shapes, strict=True)
            for found in (self.demand.get(shape, nothing),)
        )
