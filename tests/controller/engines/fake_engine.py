"""A fake engine whose answers a test scripts, and a driver of the fake engine whose time a test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from controller.core.cluster.node import Node
from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineUnavailable,
    ExecutionEngine,
    ForeignJob,
    ForeignNode,
    ForeignState,
    Outcome,
    Ref,
    Seen,
    Task,
)
from controller.engines.driver.driver import EngineDriver
from controller.engines.driver.driver_rules import DriverRules, Journal
from controller.engines.driver.foreign_nodes import ForeignNodes, NodeActions
from controller.engines.driver.record_files import RecordFiles
from controller.engines.engine_links import DelegateChannel
from controller.engines.tags import prefix_of
from wire.agent.frames import AgentFrame, ControllerFrame, unpack
from wire.agent.orders import Settle, Start, Stop
from wire.agent.reports import AttemptStatus, Hello, NodeFacts, Report

STORE = "0f3a9c112233445566778899aabbccdd"
PREFIX = prefix_of(STORE)
INTERVAL = 10.0
LOST_AFTER = 300.0


@dataclass
class World:
    """The foreign system behind the fake engine. It outlives the engine, as a real one outlives the
    controller.
    """

    jobs: list[ForeignJob] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    nodes: list[ForeignNode] = field(
        default_factory=lambda: [
            ForeignNode("n1", NodeFacts(64_000, 256_000)),
            ForeignNode("n2", NodeFacts(8_000, 9_000)),
        ]
    )
    complete: bool = True
    look_fails: str = ""
    lies_empty: int = 0
    """The number of coming looks that wrongly show no foreign job."""
    ask_fails: str = ""
    """The ask fails before it has an effect."""
    answer_lost: str = ""
    """The ask has its effect, and the answer is lost."""
    refuses: AskRefused | None = None
    ignores_end: bool = False
    initial: ForeignState = ForeignState.RUNNING
    asks: list[tuple[str, bool]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    graces: list[float] = field(default_factory=list)
    """The grace time of each end()."""
    forgotten: list[str] = field(default_factory=list)
    logs_read: list[str] = field(default_factory=list)
    looks: int = 0
    number: int = 0

    def add(
        self, tag: str, state: ForeignState = ForeignState.RUNNING, reason: str = "", where: str = ""
    ) -> str:
        """Start a foreign job, and return its name."""
        self.number += 1
        ref = f"f{self.number}"
        self.jobs.append(ForeignJob(tag, ref, state, where, reason))
        return ref

    def of(self, tag: str) -> list[ForeignJob]:
        return [each for each in self.jobs if each.tag == tag]

    def change(self, ref: str, state: ForeignState, reason: str = "", where: str = "") -> None:
        self.jobs = [
            ForeignJob(each.tag, each.ref, state, where, reason) if each.ref == ref else each
            for each in self.jobs
        ]

    def finish(self, ref: str, outcome: Outcome | None, *, purged: bool = False) -> None:
        """End a foreign job. A purged one is no longer listed."""
        if outcome is not None:
            self.outcomes[ref] = outcome
        if purged:
            self.jobs = [each for each in self.jobs if each.ref != ref]
        else:
            self.change(ref, ForeignState.ENDED)


class FakeEngine(ExecutionEngine):
    """An engine on a World."""

    caps = EngineCaps(logs=True, gangs=True)

    def __init__(self, world: World) -> None:
        self.world = world

    async def look(self) -> Seen:
        world = self.world
        world.looks += 1
        if world.look_fails:
            raise EngineUnavailable(world.look_fails)
        jobs = tuple(world.jobs)
        if world.lies_empty:
            world.lies_empty -= 1
            jobs = ()
        return Seen(world.complete, jobs, tuple(world.nodes))

    async def ask(self, task: Task, tag: str, *, again: bool) -> Ref:
        world = self.world
        world.asks.append((tag, again))
        if world.ask_fails:
            raise EngineUnavailable(world.ask_fails)
        if world.refuses is not None:
            raise world.refuses
        there = world.of(tag) if again else []
        ref = there[0].ref if there else world.add(tag, world.initial)
        if world.answer_lost:
            raise EngineUnavailable(world.answer_lost)
        return ref

    async def end(self, ref: Ref, grace_s: float) -> None:
        self.world.ends.append(ref)
        self.world.graces.append(grace_s)
        if not self.world.ignores_end and any(each.ref == ref for each in self.world.jobs):
            self.world.finish(ref, Outcome(signal=15))

    async def proof(self, ref: Ref, tag: str) -> Outcome | None:
        return self.world.outcomes.get(ref)

    async def forget(self, ref: Ref, tag: str) -> None:
        self.world.forgotten.append(ref)
        self.world.jobs = [each for each in self.world.jobs if each.ref != ref]

    async def logs(self, ref: Ref, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        self.world.logs_read.append(ref)
        yield f"{ref} {stream}\n".encode()

    def script(self, task: Task, tag: str) -> str:
        return f"{tag}: {' '.join(task.order.command)}"


class Rig:
    """A driver of the fake engine with virtual time, and what it has reported. `restart` makes a new driver
    on the same files, as after a kill of the controller.
    """

    def __init__(self, directory: Path, world: World | None = None, **rules: float) -> None:
        self.world = world or World()
        self.directory = directory
        self.now = 1_000.0
        self.wanted: dict[tuple[int, int, int], str] = {}
        """The journal: the node of each (job, attempt, rank) that has not ended."""
        self.acts = True
        """Whether the controller may act, because no other controller leads."""
        self.drained: dict[str, str] = {}
        self.added: list[str] = []
        self.removed: list[str] = []
        self.resumed: list[str] = []
        self.node_states: dict[str, Node] = {}
        self.reports: list[AttemptStatus] = []
        self.channels: dict[str, DelegateChannel] = {}
        settings = {"interval_s": INTERVAL, "lost_after_s": LOST_AFTER, **rules}
        self.rules = DriverRules(**settings)  # type: ignore[arg-type]
        self.driver = self._driver()

    def _driver(self) -> EngineDriver:
        async def add(name: str, _: ForeignNode) -> bool:
            self.added.append(name)
            self.node_states.setdefault(name, Node(name, {}))
            return True

        async def remove(name: str) -> None:
            self.removed.append(name)

        async def drain(name: str, why: str) -> None:
            self.node_states[name].drained, self.node_states[name].why = True, why

        async def resume(name: str) -> None:
            self.node_states[name].drained, self.node_states[name].why = False, ""
            self.resumed.append(name)

        actions = NodeActions(
            add=add,
            remove=remove,
            drain=drain,
            resume=resume,
            open=lambda name, node: None,
            renew=lambda name: None,
            node=lambda name: self.node_states.get(name),
        )
        files = RecordFiles(self.directory)
        files.prepare()
        return EngineDriver(
            "fake",
            FakeEngine(self.world),
            self.rules,
            files,
            Journal(
                lambda: self.now,
                lambda job, attempt, rank: self.wanted.get((job, attempt, rank)),
                lambda: self.acts,
            ),
            ForeignNodes("fake", {}, actions),
            PREFIX,
        )

    async def restart(self) -> None:
        """Kill the driver and start another one on the same files."""
        await self.driver.close()
        self.channels.clear()
        self.driver = self._driver()

    async def round(self, seconds: float = INTERVAL) -> None:
        """Let an interval pass, look once, and wait for all requests."""
        self.now += seconds
        if self.driver.breaker.may_look(self.now):
            await self.driver.run_round()
        await self.settle()

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.round()

    async def settle(self) -> None:
        """Make all requests that are due, and collect the reports."""
        for _ in range(3):
            self.driver.make_requests()
            await self.driver.runner.idle()
        self._collect()

    def connect(self, node: str = "fake-n1") -> Hello:
        """Open the channel of a node, and return its hello."""
        assert self.driver.frames.problem(node) == ""
        self.channels[node] = DelegateChannel(node, self.driver.frames)
        frames = self._collect()
        hello = frames[0]
        assert isinstance(hello, Hello)
        return hello

    def send(self, frame: ControllerFrame, node: str = "fake-n1") -> None:
        self.driver.frames.handle(self.channels[node], frame)
        self._collect()

    def start(self, job: int, attempt: int = 1, node: str = "fake-n1", **more: object) -> str:
        """Place an attempt on a node, and return its tag."""
        rank = int(str(more.get("rank", 0)))
        self.wanted[job, attempt, rank] = node
        self.send(Start(job, attempt, ("true",), "ada", 1_000, 100, **more), node)  # type: ignore[arg-type]
        return f"{PREFIX}{job}-{attempt}-{rank}"

    def stop(self, job: int, attempt: int = 1, why: str = "cancelled") -> None:
        self.send(Stop(job, attempt, 5.0, why))

    def settled(self, job: int, attempt: int = 1) -> None:
        self.wanted.pop((job, attempt, 0), None)
        self.send(Settle(job, attempt))

    def last(self, job: int, attempt: int = 1) -> AttemptStatus | None:
        """Return the last report about an attempt."""
        found = [each for each in self.reports if (each.job, each.attempt) == (job, attempt)]
        return found[-1] if found else None

    def ended(self, job: int, attempt: int = 1) -> AttemptStatus | None:
        """Return the report of the end of an attempt; None if it has not ended."""
        last = self.last(job, attempt)
        return last if last is not None and last.ended_at is not None else None

    def _collect(self) -> list[AgentFrame]:
        frames: list[AgentFrame] = []
        for channel in self.channels.values():
            data, channel._unread = bytes(channel._unread), bytearray()
            for line in data.splitlines():
                frame = unpack(line)
                frames.append(frame)  # type: ignore[arg-type]
                if isinstance(frame, Report):
                    self.reports.append(frame.status)
        return frames
