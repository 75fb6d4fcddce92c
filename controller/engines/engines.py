"""All execution engines of one controller: opens them, follows changes of [engines], and answers questions
about them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controller.config import Config, ConfigProblem, problem_at
from controller.config.tables.engines import EngineSection
from controller.core.cluster.node import Node
from controller.core.model.decision.decision import Refusal, Reply
from controller.core.model.inputs import node_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from controller.core.state.state import State
from controller.engines.contract import (
    EngineScope,
    EngineType,
    EngineUnavailable,
    ForeignNode,
    ForeignQuota,
    PilotAgent,
)
from controller.engines.driver.driver import EngineDriver
from controller.engines.driver.driver_rules import DriverRules, Journal
from controller.engines.driver.foreign_nodes import ForeignNodes, NodeActions
from controller.engines.driver.record_files import RecordFiles, live_records
from controller.engines.engine_links import DelegateLink, PilotLink
from controller.engines.foreign_quotas import ForeignQuotas
from controller.engines.pools.keeper import PoolNodes
from controller.engines.pools.pool_driver import PoolDriver
from controller.engines.pools.pool_engine import PoolEngine, live_machines
from controller.engines.pools.scale_out import ScaleOut, Simulate
from controller.engines.tags import prefix_of
from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.link import NodeLink
from controller.nodes.link_factory import MISSED_PINGS
from controller.registry.engines import engine_labels, engine_taints, engine_types, quota_source
from wire.cluster.quota import Quota
from wire.job.spec import JobSpec
from wire.names import ENGINE_LABEL

log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True)
class Controller:
    """The functions and values of the controller that the engines use."""

    state: Callable[[], State]
    now: Callable[[], float]
    may_act: Callable[[], bool]
    """Return whether this controller may send orders."""
    ask: Callable[[Input], Awaitable[Reply]]
    open_link: Callable[[NodeLink], None]
    close_link: Callable[[str], Awaitable[None]]
    remove_node: Callable[[str, str], Awaitable[Reply]]
    store_id: str
    cluster: str
    """The name by which agents recognise their controller."""
    simulate: Simulate
    """Simulate which waiting jobs would start on further nodes."""
    leader: Leadership = ALONE


class Engines:
    """The execution engines of the tables [engines.NAME], each with its driver.

    1. `open` makes the engine of each table, and begins to look at it.
    2. `reconfigure` closes the engines whose tables have changed or are gone, and opens those that are new or
       changed. Foreign jobs continue meanwhile, and the new driver finds them by their tags.
    3. An engine whose foreign jobs may still run cannot be removed from the configuration
       (`removal_problems`), because nothing would see their ends.
    """

    def __init__(self, config: Config, controller: Controller) -> None:
        self.config = config
        self.drivers: dict[str, EngineDriver] = {}
        self.pools: dict[str, PoolDriver] = {}
        """The drivers of the engines that are machine pools."""
        self._controller = controller
        self._links: dict[str, DelegateLink] = {}
        self._adding = asyncio.Lock()
        """Held while an engine adds a node, so that two engines do not add the same name."""
        self.quotas: ForeignQuotas | None = None
        """The quotas of projects that come from an engine; None if `[quota] provider` is not one of
        EngineQuotas.
        """

    def open(self) -> None:
        """Open all engines of the configuration."""
        types: Mapping[str, EngineType] = engine_types(self.config)
        for name in types:
            self._open(name, types[name])
        self._open_quotas()

    async def close(self) -> None:
        """Close all engines. Foreign jobs continue."""
        for pool in self.pools.values():
            await pool.close()
        if self.quotas is not None:
            await self.quotas.close()
        for driver in self.drivers.values():
            await driver.close()

    async def reconfigure(self, config: Config) -> None:
        """Open, close and change engines so that they agree with the tables of `config`."""
        old, self.config = self.config, config
        types: Mapping[str, EngineType] = engine_types(config)
        shared = old.scheduler.beat_s == config.scheduler.beat_s
        for name in list(self.drivers):
            same = shared and old.engines.get(name) == config.engines.get(name)
            if not same:
                driver = self.drivers.pop(name)
                if name in self.pools:
                    await self.pools.pop(name).close()
                for node in driver.nodes.names:
                    await self._controller.close_link(node)
                await driver.close()
                if name not in config.engines:
                    for node in driver.nodes.names:
                        await self._remove_node(name, node)
        for name, made in types.items():
            if name not in self.drivers:
                self._open(name, made)
        if quota_source(old) != quota_source(config):
            if self.quotas is not None:
                await self.quotas.close()
            self._open_quotas()

    def refusal(self, spec: JobSpec, user: str) -> str:
        """Return why the engine that a submitted job names can never run the job; empty if it may, or if the
        job names no engine. The queue of a job may name the engine for the job.
        """
        queue = self.config.queues.get(spec.queue)
        named = {**spec.selector, **(queue.select if queue is not None else {})}.get(ENGINE_LABEL, "")
        driver = self.drivers.get(named)
        why = "" if driver is None else driver.engine.refusal(spec, user)
        return f"engine {named}: {why}" if why else ""

    def waiting_reason(self, job: Job) -> str:
        """Return why the foreign job of a job waits, such as `slurm:gpu: QOSGrpGRES`; empty if it does not
        wait.
        """
        found = (each.attempts.waiting_reason(job.id, job.attempt) for each in self.drivers.values())
        return next((reason for reason in found if reason), "")

    def _open_quotas(self) -> None:
        source, controller = quota_source(self.config), self._controller
        self.quotas = None
        if source is None:
            return

        async def read(name: str) -> ForeignQuota:
            driver = self.drivers.get(source.engine)
            if driver is None:
                raise EngineUnavailable(f"scheduler.toml has no table [engines.{source.engine}]")
            async with asyncio.timeout(driver.rules.timeout_s):
                return await driver.engine.quota(name)

        self.quotas = ForeignQuotas(
            source,
            read,
            lambda project: controller.state().quotas.edits.get(("project", project), Quota()),
            controller.ask,
            controller.may_act,
            controller.now,
        )
        self.quotas.open()

    def _open(self, name: str, made: EngineType) -> None:
        section, controller = self.config.engines[name], self._controller
        files = RecordFiles(engine_directory(self.config, name))
        files.prepare()
        prefix = prefix_of(controller.store_id)
        scope = EngineScope(
            name, prefix, str(files.directory), section.timeout_s, section.interval_s, controller.now
        )
        nodes = ForeignNodes(name, section.labels, self._actions(name, section))
        engine = made.connect(scope)
        driver = self.drivers[name] = EngineDriver(
            name,
            engine,
            DriverRules(
                section.interval_s,
                section.timeout_s,
                section.lost_after_s,
                section.breaker_failures,
                section.ask_patience_s,
            ),
            files,
            Journal(controller.now, self._node_of, controller.may_act),
            nodes,
            prefix,
            section.type,
        )
        driver.open()
        if isinstance(engine, PoolEngine):
            pool = self.pools[name] = self._pool(engine, driver, section)
            pool.open()

    def _pool(self, engine: PoolEngine, driver: EngineDriver, section: EngineSection) -> PoolDriver:
        name, controller = driver.name, self._controller
        by = f"engine {name}"

        async def drain_by(node: str, why: str, empty_by: float) -> None:
            await controller.ask(node_inputs.Drain(node, by, why, empty_by))

        async def declare_lost(node: str) -> None:
            await controller.ask(node_inputs.DeclareLost(node, by))

        async def remove(node: str) -> bool:
            return not isinstance(await controller.remove_node(node, by), Refusal)

        def wanted() -> bool:
            return not driver.drained and not driver.breaker.is_open and bool(len(controller.state().queue))

        nodes = PoolNodes(driver.nodes.node_name, self._node, drain_by, declare_lost, remove, f"{by}: ")
        return PoolDriver(
            engine,
            nodes,
            driver.runner,
            lambda budget, back_off: ScaleOut(
                name,
                engine.options,
                engine.fleet,
                budget,
                back_off,
                controller.simulate,
                engine_labels(name, section),
                engine_taints(name, section),
                controller.now,
            ),
            controller.may_act,
            wanted,
        )

    def _actions(self, engine: str, section: EngineSection) -> NodeActions:
        controller = self._controller
        by = f"engine {engine}"

        async def drain(node: str, why: str) -> None:
            await controller.ask(node_inputs.Drain(node, by, why))

        async def resume(node: str) -> None:
            await controller.ask(node_inputs.Resume(node, by))

        async def add(node: str, foreign: ForeignNode) -> bool:
            # Give a pilot node all its labels here, because its agent does not know them. The driver reports
            # the labels of all other nodes in their hellos. The label of the engine shows other engines that
            # the name is in use.
            labels = {ENGINE_LABEL: engine}
            if foreign.pilot:
                labels = {**foreign.facts.labels, **engine_labels(engine, section)}
            async with self._adding:
                there = self._node(node)
                if node in self.config.nodes or (there is not None and there.host is not None):
                    log.error("engine %s: another node has the name %s; rename one of them", engine, node)
                    return False
                if there is not None and there.labels.get(ENGINE_LABEL, engine) != engine:
                    return False  # Another engine has just added the name. The next look finds another name.
                taints = engine_taints(engine, section)
                await controller.ask(node_inputs.AddNode(node, labels, None, by, taints))
                return True

        return NodeActions(
            add=add,
            remove=partial(self._remove_node, engine),
            drain=drain,
            resume=resume,
            open=partial(self._open_link, engine),
            renew=self._renew,
            node=self._node,
        )

    def _open_link(self, engine: str, name: str, node: ForeignNode) -> None:
        ping_s = self.config.scheduler.beat_s
        driver = self.drivers[engine]
        if node.pilot:
            leader = self._controller.leader
            agent = PilotAgent(name, self.config.job_policy, self._controller.cluster, leader)
            connect = partial(driver.engine.connect, node.name, agent)
            self._controller.open_link(PilotLink(name, connect, ping_s, MISSED_PINGS * ping_s, leader))
            return
        link = self._links[name] = DelegateLink(name, driver.frames, ping_s, MISSED_PINGS * ping_s)
        self._controller.open_link(link)

    def _renew(self, name: str) -> None:
        link = self._links.get(name)
        driver = next((each for each in self.drivers.values() if name in each.nodes), None)
        if link is not None and driver is not None:
            link.renew(driver.frames.hello(name))

    async def _remove_node(self, engine: str, name: str) -> None:
        self._links.pop(name, None)
        reply = await self._controller.remove_node(name, f"engine {engine}")
        if isinstance(reply, Refusal):
            log.warning("engine %s: node %s stays: %s", engine, name, reply.message)

    def _node(self, name: str) -> Node | None:
        return self._controller.state().nodes.get(name)

    def _node_of(self, number: int, attempt: int, rank: int) -> str | None:
        job = self._controller.state().jobs.get(number)
        if job is None or job.attempt != attempt or rank >= len(job.members):
            return None
        member = list(job.members.values())[rank]
        return None if member.ended_at is not None else member.allocation.node


def engine_directory(config: Config, name: str) -> Path:
    """Return the directory with the records of one engine."""
    return config.state_dir / "engines" / name


def removal_problems(config: Config) -> list[ConfigProblem]:
    """Return a problem for each engine that has no table in the configuration although its foreign jobs or
    machines may still run.
    """
    problems = []
    above = config.state_dir / "engines"
    for directory in sorted(above.iterdir()) if above.is_dir() else ():
        if directory.name in config.engines:
            continue
        count, machines = live_records(directory), live_machines(directory)
        if count or machines:
            what = f"{count} of its jobs" if count else f"{machines} of its machines"
            problems.append(
                problem_at(
                    config.source,
                    ("engines", directory.name),
                    f"the table is missing, but {what} may still run there",
                    f"Put [engines.{directory.name}] back. To remove the engine, first run 'corral engines "
                    f"drain {directory.name}' and wait until its jobs and machines have ended.",
                )
            )
    return problems
