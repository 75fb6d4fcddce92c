"""The machine pool of pilots: submits, lists and cancels allocations of Slurm, and connects to the agents in
them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import dataclass
from typing import ClassVar

from controller.engines.batch_systems.batch_job import BatchJob, Phase
from controller.engines.batch_systems.command_runner import (
    CommandRunner,
    LocalRunner,
    SshRunner,
    outputs_of,
    with_sections,
)
from controller.engines.batch_systems.dialect import Refusal
from controller.engines.batch_systems.slurm.slurm_commands import SlurmCommands
from controller.engines.batch_systems.wrapper import shell_path
from controller.engines.contract import EngineScope, EngineUnavailable, Offer, PilotAgent
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
from controller.engines.pools.pool_engine import PoolEngine, offer_of
from controller.engines.pools.slurm_pilots.pilot_commands import (
    PilotStatus,
    join_command,
    look_commands,
    pilot_script,
    pilots,
    submit_command,
    upload_command,
)
from controller.nodes.agent.arguments import agent_arguments
from controller.nodes.agent.zipapp import bundle
from controller.nodes.reconnecting import CannotConnect
from controller.nodes.session import AgentChannel
from wire.cluster.hosts import HostSpec, memory_mib

_SUBMIT_FAILED = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPilotType(PoolOptions):
    """The options of a pool of pilots. Each shape is the resources of one allocation on one node.

    `time_s` is the time limit of an allocation. `notice_s` seconds before its end, the node is drained and
    its jobs are stopped. `records` is a directory that the login node and the compute nodes share, and
    `sockets` one on each compute node.
    """

    name: ClassVar[str] = "slurm-pilot"

    shapes: tuple[MachineShape, ...]
    login: str = ""
    login_identity: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = "gpu"
    records: str = "~/.corral/pilots"
    sockets: str = "/tmp/corral-pilots"  # noqa: S108 - the relay refuses a directory that others can change
    time_s: float = 43_200.0
    notice_s: float = 300.0
    join_s: float = 86_400.0
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        PoolOptions.__post_init__(self)
        if not 0 < self.notice_s < self.time_s:
            raise ValueError("notice_s must be more than 0 and less than time_s")

    def configured_offers(self) -> tuple[Offer, ...]:
        return tuple(offer_of(shape) for shape in self.shapes)

    def connect(self, scope: EngineScope) -> PilotEngine:
        runner: CommandRunner = LocalRunner(scope.timeout_s)
        if self.login:
            runner = SshRunner(self.login, self.login_identity, scope.timeout_s)
        return PilotEngine(PilotPool(self, scope, runner), self, scope)


class PilotPool(MachinePool):
    """The pilots of one cluster in Slurm.

    1. create() submits an allocation whose name is the token. The id is kept in the pilot's directory, so the
       same token is submitted once.
    2. machines() lists the jobs of the account whose names are tokens of this cluster. A pilot has ended only
       if the accounting says so (`pilot_commands.pilots`). While the accounting does not answer, the list is
       not complete.
    3. end() cancels an allocation, after it has checked the name.

    Invariant: only allocations with a token of this cluster are cancelled. Cost: one shell command for each
    method.
    """

    idempotent = True

    def __init__(self, options: SlurmPilotType, scope: EngineScope, runner: CommandRunner) -> None:
        self._options = options
        self._prefix = scope.tag_prefix
        self._now = scope.now
        self._runner = runner
        self._slurm = SlurmCommands()

    async def machines(self) -> MachineList:
        commands = look_commands(self._options.records, self._prefix)
        done = await self._runner.run(with_sections(*commands))
        jobs, ids, accounting = outputs_of(done, len(commands), self._slurm.name)
        for each in (jobs, ids):
            if each.code:
                raise EngineUnavailable(f"Slurm: {each.last_words}")
        sacct = "" if accounting.code else accounting.out
        try:
            found = tuple(map(self._machine, pilots(self._prefix, jobs.out, sacct)))
        except ValueError as error:
            raise EngineUnavailable(f"Slurm gave an answer that Corral cannot read: {error}") from None
        return MachineList(not accounting.code, found)

    async def create(self, order: MachineOrder) -> str:
        shape = self._shape(order.offer.shape)
        if shape is None:
            raise NoCapacity(f"there is no shape {order.offer.shape} in scheduler.toml")
        job = self._job(order.token, shape)
        options, agent = self._options, await self.upload()
        script = pilot_script(job, options.python or "python3", agent, options.sockets)
        done = await self._runner.run(submit_command(job), script.encode())
        if done.code:
            # Only a refusal proves that nothing was submitted.
            if done.code != _SUBMIT_FAILED or self._slurm.refusal(done.err) is Refusal.UNKNOWN:
                raise EngineUnavailable(f"Slurm gave no answer to a submit: {done.last_words}")
            raise NoCapacity(f"Slurm: {done.last_words}")
        try:
            return self._slurm.submitted_id(done.out)
        except ValueError as error:
            raise EngineUnavailable(str(error)) from None

    async def end(self, ref: str) -> None:
        quoted = shlex.quote(ref)
        named = f"squeue -h -a -j {quoted} -o %j 2> /dev/null"
        done = await self._runner.run(
            f"case $({named}) in {shlex.quote(self._prefix)}*) scancel {quoted};; esac"
        )
        if done.code:
            raise EngineUnavailable(f"Slurm: {done.last_words}")

    async def offers(self) -> tuple[Offer, ...]:
        return self._options.configured_offers()

    async def close(self) -> None:
        await self._runner.close()

    async def upload(self) -> str:
        """Send the agent program to the directory of records, if it is not there. Return its path."""
        made = await asyncio.to_thread(bundle)
        path = f"{self._options.records}/agents/{made.name}"
        done = await self._runner.run(f"[ -s {shell_path(path)} ]")
        if done.code:
            done = await self._runner.run(upload_command(path), made.data)
        if done.code:
            raise EngineUnavailable(f"{self._options.records} cannot be written: {done.last_words}")
        return path

    async def open_agent(self, machine: Machine, shape_name: str, agent: PilotAgent) -> AgentChannel:
        """Start an agent in the allocation of a pilot, and open a channel to it."""
        options, shape = self._options, self._shape(shape_name)
        if shape is None:
            raise CannotConnect(f"there is no shape {shape_name} in scheduler.toml")
        path = await self.upload()
        host = HostSpec(
            machine.address,
            python=options.python,
            spool=f"{options.spool or f'{options.sockets}/spools'}/{machine.ref}",
            gpus=options.gpus,
            cpus=shape.cpus,
            memory=shape.memory,
            run_as_self=options.run_as_self,
        )
        command = join_command(machine.ref, options.python or "python3", path, options.sockets)
        arguments = agent_arguments(agent.node, host, "", agent.jobs, agent.cluster, agent.leader.epoch())
        channel = await self._runner.open(command)
        channel.write(json.dumps([*arguments, "--replace", "--address", machine.address]).encode() + b"\n")
        return channel

    def _shape(self, name: str) -> MachineShape | None:
        return next((each for each in self._options.shapes if each.name == name), None)

    def _job(self, token: str, shape: MachineShape) -> BatchJob:
        options = self._options
        return BatchJob(
            token,
            (),
            cpus=shape.cpus,
            memory_mib=memory_mib(shape.memory),
            gpus=shape.gpus,
            gres=options.gres,
            time_limit_s=options.time_s,
            partition=options.partition,
            account=options.account,
            qos=options.qos,
            constraint=options.constraint,
            directory=options.records,
            extra=options.extra,
        )

    def _machine(self, found: PilotStatus) -> Machine:
        state = MachineState.RUNNING
        if found.proven:
            state = MachineState.ENDED
        elif found.phase in (Phase.WAITING, Phase.HELD):
            state = MachineState.STARTING
        return Machine(found.ref, found.token, state, found.node, notice_at=self._notice(found))

    def _notice(self, found: PilotStatus) -> float | None:
        """Return the end of an allocation, if this is less than `notice_s` seconds away."""
        if found.ends_at is None or found.ends_at - self._now() > self._options.notice_s:
            return None
        return found.ends_at


class PilotEngine(PoolEngine):
    """A pool whose agents are reached through Slurm instead of SSH."""

    pool: PilotPool

    async def connect(self, node: str, agent: PilotAgent) -> AgentChannel:
        machine = self.fleet.by_name(node)
        listed = None if machine is None else machine.listed
        if machine is None or listed is None or listed.state is not MachineState.RUNNING:
            raise CannotConnect(f"Slurm does not list the pilot {node} as running")
        return await self.pool.open_agent(listed, machine.record.shape, agent)
