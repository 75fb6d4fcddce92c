"""The execution engine of a machine pool: each machine runs Corral's agent, and is a node while it exists."""

from __future__ import annotations

import logging
from pathlib import Path

from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineKind,
    EngineScope,
    ExecutionEngine,
    ForeignNode,
    Need,
    Offer,
    Outcome,
    PilotAgent,
    Seen,
    Task,
)
from controller.engines.driver.record_files import RecordDirectory
from controller.engines.pools.fleet import Fleet
from controller.engines.pools.machine_pool import (
    Machine,
    MachinePool,
    MachineShape,
    MachineState,
    PoolOptions,
)
from controller.engines.pools.machine_records import MachineRecord, PoolMachine
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.session import AgentChannel
from controller.nodes.ssh.connector import SshConnector
from controller.nodes.ssh.known_hosts import KnownHosts
from controller.nodes.ssh.link import SshLink
from wire.agent.reports import GpuFacts, NodeFacts
from wire.cluster.hosts import HostSpec, memory_mib
from wire.names import COST_LABEL

log = logging.getLogger("corral.engines")
ADVICE = "Look at the machine of this name in the pool, then move the file away"


class PoolEngine(ExecutionEngine):
    """An engine whose nodes are the machines of a pool.

    1. look() lists the machines, and compares the list with the records (see Fleet).
    2. A machine that runs and that Corral does not end is a node. It is removed from the cluster when it
       ends.
    3. connect() starts the agent by SSH, as on any other host.
    """

    caps = EngineCaps(kinds=(EngineKind.PILOT,))

    def __init__(self, pool: MachinePool, options: PoolOptions, scope: EngineScope) -> None:
        self.pool = pool
        self.options = options
        self.scope = scope
        files = RecordDirectory(Path(scope.directory) / "machines", MachineRecord, ADVICE)
        files.prepare()
        self.fleet = Fleet(
            files, scope.tag_prefix, stores_tokens=pool.stores_tokens, host_keys=pool.makes_host_keys
        )
        self.looks = 0
        """The number of successful looks."""

    async def look(self) -> Seen:
        began = self.scope.now()
        listing = await self.pool.machines()
        for machine in self.fleet.compare(listing, began, self.scope.now()):
            await self.fleet.save(machine)
        self.looks += 1
        # A machine that has joined stays a node until its record says that it ends, because the pool can be
        # wrong.
        nodes = [
            self._node(each)
            for each in self.fleet.live
            if not each.record.ending and (each.running or each.record.joined_at is not None)
        ]
        foreign = [
            ForeignNode(each.ref, NodeFacts(0, 0), temporary=True, pilot=True)
            for each in self.fleet.foreign.values()
        ]
        return Seen(listing.complete, (), (*nodes, *foreign))

    async def connect(self, node: str, agent: PilotAgent) -> AgentChannel:
        """Open an SSH connection to a machine, and start the agent there."""
        machine = self.fleet.by_name(node)
        listed = machine.listed if machine is not None else self.fleet.foreign.get(node)
        if listed is None or listed.state is not MachineState.RUNNING or not listed.address:
            raise CannotConnect(f"the pool does not list the machine {node} as running")
        key = (machine.record.host_key if machine is not None else "") or listed.host_key
        connector = SshConnector(KnownHosts(lambda: {agent.node: key} if key else {}))
        link = SshLink(
            agent.node, self._host(listed), connector, agent.jobs, agent.cluster, leader=agent.leader
        )
        return await link.connect()

    async def offers(self, need: Need) -> tuple[Offer, ...]:
        return await self.pool.offers()

    async def ask(self, task: Task, tag: str, *, again: bool) -> str:
        raise AskRefused("the machines of this pool run jobs through their agents", lasting=True)

    async def end(self, ref: str, grace_s: float) -> None:
        """Do nothing, because a pool has no foreign jobs."""

    async def proof(self, ref: str, tag: str) -> Outcome | None:
        return None

    def script(self, task: Task, tag: str) -> str:
        return ""

    async def close(self) -> None:
        await self.pool.close()

    def _host(self, machine: Machine) -> HostSpec:
        options = self.options
        address = machine.address
        user = "" if "@" in address else f"{options.user}@"
        port = "" if ":" in address else f":{options.port}"
        return HostSpec(
            f"{user}{address}{port}",
            options.identity,
            options.python,
            f"{options.spool}/{machine.ref}" if options.spool else "",
            gpus=options.gpus,
            run_as_self=options.run_as_self,
        )

    def _node(self, machine: PoolMachine) -> ForeignNode:
        record = machine.record
        labels = dict(record.labels)
        if record.price_per_hour:
            labels[COST_LABEL] = f"{record.price_per_hour:.9f}".rstrip("0").rstrip(".")
        return ForeignNode(
            self.fleet.foreign_name(record),
            NodeFacts(0, 0, labels=labels),
            available=not record.leaving,
            why=record.leaving,
            temporary=True,
            pilot=True,
        )


def live_machines(directory: Path) -> int:
    """Return how many machines of an engine may still exist, from the files in its directory."""
    files = RecordDirectory(directory / "machines", MachineRecord, ADVICE)
    return sum(record.ended_at is None and record.tried for record in files.load())


def offer_of(
    shape: MachineShape, zone: str = "", labels: dict[str, str] | None = None, most: int = 1_000_000
) -> Offer:
    """Return the offer of a shape of scheduler.toml in a zone."""
    gpus = tuple(
        GpuFacts(index, f"{shape.name}-{index}", shape.gpu_model, memory_mib(shape.gpu_memory or "1M"))
        for index in range(shape.gpus)
    )
    facts = NodeFacts(
        shape.cpus * 1_000, memory_mib(shape.memory), gpus, labels={**(labels or {}), "shape": shape.name}
    )
    return Offer(shape.name, facts, shape.boot_s, shape.price, zone, most)
