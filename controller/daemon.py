"""The only landing: inputs come in, the engine decides, the store keeps, and only then anything leaves."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from controller.config import Config
from controller.core import inputs
from controller.core.effects import Effect
from controller.core.engine import Engine
from controller.core.events import Event, JobEvent, NodeEvent, body_of
from controller.core.gangs import together
from controller.core.inputs import Input, Refusal, Reply, Tick
from controller.core.jobs import NEVER, Job
from controller.core.losses import overdue
from controller.core.notes import noted
from controller.core.plugin import Pipeline
from controller.core.rebalancing import AUTO
from controller.core.records import restore, touched
from controller.core.rows import Batch, Entry
from controller.core.state import State
from controller.core.strangers import news_of
from controller.data import DataWatch
from controller.feed import Commit, Feed, Subscription
from controller.hooks import Hooks
from controller.idleness import IdleWatch
from controller.nodes.hosts import Hosts
from controller.nodes.inventory import Inventory
from controller.nodes.knownhosts import left_by_older
from controller.nodes.link import LinkLost, NodeLink
from controller.store.failures import StoreFailure, StoreHeldUp
from controller.store.store import Store
from controller.tally import Tally
from wire.frames import (
    AgentFrame,
    GpuChecked,
    GpuProcess,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuSample,
    GpuTrouble,
    Hello,
    Report,
)
from wire.hosts import HostSpec
from wire.text import duration

T = TypeVar("T")
Asked = tuple[Input, "asyncio.Future[Reply] | None"]
"""What came in, and who waits for the answer."""
MAX_BATCH = 2_000
"""Inputs in one commit: enough to share an fsync, few enough that nobody waits long for it."""
CYCLE_SHARE = 0.5
"""At most this part of the time goes to cycles, however long one takes."""
HELD_PAUSE_S = 1.0
SILENCE_STEP_S = 1.0
LOOK_S = 60.0
MISHAPS = 50
"""So many times a minute what came in may meet a bug of ours before we give up."""
REST_S = 60.0
"""An agent that said what we cannot deal with says it again no sooner."""
BEHIND_S = 1.0

log = logging.getLogger("corral.daemon")


class Stopping(Exception):
    """The controller is shutting down and takes no more inputs."""


class Daemon:
    """Owns the engine, the store and the links. Everything here runs on one event loop."""

    def __init__(self, config: Config, pipeline: Pipeline, store: Store) -> None:
        self.config = config
        self.store = store
        self.started_at = time.time()
        self.links: dict[str, NodeLink] = {}
        self.samples: dict[str, dict[str, GpuSample]] = {}
        self.cluster = f"{store.id}@{socket.gethostname()}"
        """Whose agents they are, as they are told."""
        self.hosts = Hosts(
            lambda: self.state.host_keys,
            config.jobs.policy,
            config.scheduler.beat_s,
            config.cluster.shared,
            self.cluster,
        )
        self._silent: dict[str, float] = {}
        """Since when a node has not been heard of, by the clock that nobody sets."""
        self._counting: asyncio.TimerHandle | None = None
        self._balancing: asyncio.TimerHandle | None = None
        self.processes: dict[str, tuple[GpuProcess, ...]] = {}
        self.idleness = IdleWatch(pipeline.idling.after_s, self._jobs, self.tell)
        self.engine: Engine
        self.seq = 0
        self._pipeline = pipeline
        self._feed = Feed()
        self.tally = Tally()
        self._hooks = Hooks(pipeline.hooks)
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._reader = ThreadPoolExecutor(1, "store-reader")
        self._inbox: deque[Asked] = deque()
        self._wake = asyncio.Event()
        self._landing = False
        self._readers: list[asyncio.Future[None]] = []
        self._stopping = False
        self._held: StoreHeldUp | None = None
        self._careful = 0
        self.mishaps: deque[float] = deque(maxlen=MISHAPS)
        """When something last met a bug of ours."""
        self._cycle_wanted = True
        self._next_cycle = 0.0
        self._latest = 0.0
        """By the clock that people mean, and `_beat` by the one that nobody sets."""
        self._beat = time.monotonic()
        waiting = config.scheduler.waiting
        self._data = DataWatch(waiting.data_roots, waiting.data_check_s, self._wanted, self._data_found)
        self._recover()
        there = {node.name: [gpu.uuid for gpu in node.facts.gpus] for node in self.state.nodes}
        self._inventory = Inventory(there)

    @property
    def state(self) -> State:
        """What is decided so far; see settled() before showing it to anybody."""
        return self.engine.state

    @property
    def trouble(self) -> str:
        """What keeps the controller from taking work, in a few words; empty if nothing does."""
        return self._held.trouble if self._held is not None else ""

    def now(self) -> float:
        """Seconds since 1970, never going back: where the clock was set back, half as fast until it is there.

        Standing still instead, nothing would be due that long: no backoff over, no reservation begun.
        """
        beat = time.monotonic()
        self._latest = max(time.time(), self._latest + (beat - self._beat) / 2)
        self._beat = beat
        return self._latest

    def _recover(self) -> None:
        """Begin anew from what the store has: at the start, and after a commit that did not happen."""
        loaded = self.store.load()
        self._probe = Batch((), (), tuple(loaded.nodes))
        state = State(self._pipeline.order, self.config.controller.keep_ended, self._pipeline.sharing)
        there = restore(state, [*loaded.jobs, *loaded.ended], loaded.nodes, loaded.notes)
        state.next_job = max(state.next_job, loaded.next_job)
        self.engine = Engine(self._pipeline, state)
        if there:  # before anything else, so that the journal says why nothing is placed on them
            self._inbox.appendleft((inputs.ControllerStarted(there), None))
        self.seq = loaded.last_seq
        self._latest = max(self._latest, loaded.last_at)  # a host without a battery begins in 1970
        behind = self._latest - time.time()
        if behind > BEHIND_S:
            log.warning(
                "the clock is %s behind the journal: until it is not, time goes half as fast",
                duration(behind),
            )
        self._cycle_wanted = True

    # --- in ---

    async def ask(self, given: Input) -> Reply:
        """Hand in an input; the answer comes when what it led to is on disk."""
        if self._stopping:
            raise Stopping("the controller is shutting down")
        if self._held is not None:
            raise self._held
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._inbox.append((given, answer))
        self._wake.set()
        return await answer

    def tell(self, given: Input) -> None:
        """Hand in an input that nobody waits for."""
        self._inbox.append((given, None))
        self._wake.set()

    def link(self, link: NodeLink) -> None:
        """Adopt a link to a node, and open it."""
        self.links[link.name] = link
        link.open(self._deliver)

    async def unlink(self, name: str) -> None:
        """Let a node's agent go, for good or before another link is opened to it."""
        if name in self.links:
            self._begin_silence(name)
        link = self.links.pop(name, None)
        self.samples.pop(name, None)
        self.processes.pop(name, None)
        if link is not None:
            await link.close()

    async def add_node(self, name: str, host: HostSpec, by: str) -> Reply:
        """A node of this name at this host from now on; what runs there goes on."""
        reply = await self.ask(inputs.AddNode(name, host.labels, host, by))
        if not isinstance(reply, Refusal):
            await self.unlink(name)
            self.link(self.hosts.link(name, host))
        return reply

    async def remove_node(self, name: str, by: str) -> Reply:
        """No such node any more."""
        reply = await self.ask(inputs.RemoveNode(name, by))
        if not isinstance(reply, Refusal):
            await self.unlink(name)
            self._silent.pop(name, None)
            self._inventory.drop(name)
        return reply

    async def import_keys(self) -> None:
        """Once: the keys that an older controller kept in a file beside its store."""
        path = self.config.state_dir / "known_hosts"
        there = {*self.config.nodes, *self.state.nodes.by_name}
        kept = {node: key for node, key in left_by_older(path).items() if node in there}
        for node, key in kept.items():
            if node not in self.state.host_keys:
                await self.ask(inputs.PinKey(node, key, path.name))
        if path.exists():
            path.rename(path.with_name(f"{path.name}.imported"))

    def _count_silence(self) -> None:
        """Once a second while a node is away: is its silence long enough for something to be done?"""
        now, losses = time.monotonic(), self._pipeline.losses
        for name, since in self._silent.items():
            node = self.state.nodes.get(name)
            if node is not None and overdue(self.state, node, losses, now - since):
                self.tell(inputs.NodeSilent(name, now - since))
        loop = asyncio.get_running_loop()
        self._counting = loop.call_later(SILENCE_STEP_S, self._count_silence) if self._silent else None

    def _begin_silence(self, node: str) -> None:
        self._silent.setdefault(node, time.monotonic())
        if self._counting is None and not self._stopping:
            self._count_silence()

    def _deliver(self, node: str, frame: AgentFrame | LinkLost) -> str:
        """What an agent says; gives what is wrong with it, and then it is not heard."""
        match frame:
            case Report(status):
                self.tell(inputs.AgentReported(node, status))
            case Hello():
                wrong = self._inventory.claim(node, [gpu.uuid for gpu in frame.facts.gpus])
                if wrong:
                    return wrong
                self._silent.pop(node, None)
                self.idleness.forget(node)
                self.tell(inputs.AgentSaidHello(node, frame))
            case LinkLost(why):
                self._begin_silence(node)
                self.tell(inputs.LinkWentDown(node, why))
            case GpuTrouble(uuid, kind, why, xid):
                self.tell(inputs.GpuTroubled(node, uuid, kind, why, xid))
            case GpuChecked(uuid, ok, why):
                self.tell(inputs.GpuLooked(node, uuid, ok, why))
            case GpuReset(uuid, ok, why):
                self.tell(inputs.GpuWasReset(node, uuid, ok, why))
            case GpuReport(samples):
                readings = self.samples.setdefault(node, {})
                readings.update((sample.uuid, sample) for sample in samples)
                self.idleness.read(node, samples, self.now())
                self._feed.publish(Commit(self.seq, (), frozenset(), frozenset({node})))
            case GpuProcesses(processes):
                self.processes[node] = processes
                for given in news_of(node, processes, self.state.offqueue):
                    self.tell(given)
                self._feed.publish(Commit(self.seq, (), frozenset(), frozenset({node})))
        return ""

    def _jobs(self) -> Iterable[Job]:
        """Those that hold something."""
        return [self.state.jobs[job] for _, job in self.state.releases]

    def _wanted(self) -> list[str]:
        return self.engine.keeper.followers.paths

    def _data_found(self, path: str) -> None:
        self.tell(inputs.DataFound(path))

    # --- out ---

    async def settled(self) -> None:
        """Return when the state shows nothing that is not on disk; raises StoreAway if nobody knows that."""
        while self._landing:
            reader = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            await reader
        if self._held is not None and self._held.adrift:
            raise self._held

    def subscribe(self) -> Subscription:
        """Everything committed from now on."""
        return self._feed.subscribe()

    async def read(self, work: Callable[[], T]) -> T:
        """Run a store read beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    # --- the landing ---

    async def run(self) -> None:
        """Decide and commit until stop(); returns when all that came in is done."""
        self._rebalance_later()
        for node in self.state.nodes:
            self._begin_silence(node.name)  # whoever was away before: how long, nobody can tell
        self.idleness.open(self.now)
        while self._inbox or not self._stopping:
            if not self._inbox and not self._cycle_due():
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), self._pause())
                except TimeoutError:
                    continue
            self._landing = True
            alone, taken, before = bool(self._careful), self._take(), self.seq
            try:
                await self._land(taken)
            except StoreHeldUp as failure:
                _refuse(taken, failure)
                self._retreat(failure)
            except Exception as failure:
                if not self._can_set_aside(taken, failure, before):
                    told = failure if isinstance(failure, StoreFailure) else Stopping("failed")
                    _refuse([*taken, *self._inbox], told)
                    raise
                await self._set_aside(taken, alone, failure)
            finally:
                self._landing = False
                self._let_read()
            self._data.wake()
            await asyncio.sleep(0)  # let those who waited for this commit read it before the next begins
            if self._held is not None:
                await self._await_store()
                if self._held is not None:
                    _refuse(self._inbox, self._held)
                    return

    def _rebalance_later(self) -> None:
        """Where that is wanted: now and then whatever can be proposed is done."""
        rules = self._pipeline.rebalance
        if rules.mode == "auto":
            loop = asyncio.get_running_loop()
            self._balancing = loop.call_later(rules.interval_s, self._rebalance)

    def _rebalance(self) -> None:
        self.tell(inputs.Rebalance(AUTO))
        self._rebalance_later()

    def stop(self) -> None:
        """Take no more inputs; run() ends once the inbox is empty."""
        self._stopping = True
        if self._balancing is not None:
            self._balancing.cancel()
        if self._counting is not None:
            self._counting.cancel()
        self.idleness.close()
        self._wake.set()

    async def close(self) -> None:
        """Leave the nodes (what runs there goes on) and the store."""
        await asyncio.gather(*(link.close() for link in self.links.values()))
        self._data.close()
        self._hooks.close()
        self._feed.close()
        self._writer.shutdown()
        self._reader.shutdown()
        self.store.close()

    def _take(self) -> list[Asked]:
        """The next batch; while somebody in it is looked for who cannot be dealt with, one at a time."""
        most = MAX_BATCH
        if self._careful:
            # A pass after each: what somebody brought may show only there.
            most, self._careful, self._next_cycle = 1, self._careful - 1, 0.0
        return [self._inbox.popleft() for _ in range(min(len(self._inbox), most))]

    async def _land(self, taken: list[Asked]) -> None:
        """One batch: decide everything, commit it, then answer, publish and carry out."""
        events: list[Event] = []
        effects: list[Effect] = []
        replies: list[tuple[asyncio.Future[Reply], Reply]] = []
        try:
            for given, answer in together(taken):
                decision = self.engine.handle(given, self.now())
                events += decision.events
                effects += decision.effects
                if answer is not None:
                    replies.append((answer, decision.reply))
            self._cycle_wanted = self._cycle_wanted or bool(events)
            if self._cycle_due():
                began = time.monotonic()
                decision = self.engine.handle(Tick(), self.now())
                events += decision.events
                effects += decision.effects
                ended = time.monotonic()
                self.tally.cycles.add(ended - began)
                self._next_cycle = ended + (ended - began) * (1 / CYCLE_SHARE - 1)
                self._cycle_wanted = False
            if events:
                await self._commit(tuple(events))
        except asyncio.CancelledError:
            _refuse(taken, Stopping("failed"))
            raise
        for waiting, reply in replies:
            if not waiting.done():
                waiting.set_result(reply)
        for effect in effects:
            for order in effect.orders():
                link = self.links.get(order.node)
                if link is not None:
                    link.send(order.frame)

    def _let_read(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    def _cycle_due(self) -> bool:
        wanted = self._cycle_wanted or self.engine.next_at <= self.now()
        return wanted and time.monotonic() >= self._next_cycle

    def _pause(self) -> float | None:
        """How long nothing is due by itself; None: until something happens."""
        rest = self._next_cycle - time.monotonic()
        if self._cycle_wanted:
            return rest
        due = self.engine.next_at
        # The clock that people mean can be set: what is due by it is looked at again now and then.
        return None if due == NEVER else max(rest, min(due - self.now(), LOOK_S))

    async def _commit(self, events: tuple[Event, ...]) -> None:
        jobs, nodes = touched(self.state, events)
        notes = noted(self.state, events)
        self.state.forget_old()
        entries = tuple(entry_of(seq, event) for seq, event in enumerate(events, self.seq + 1))
        batch = Batch(entries, tuple(jobs), tuple(nodes), tuple(notes))
        began = time.monotonic()
        await self._write(batch)
        self.tally.committed(len(entries), time.monotonic() - began)
        self.seq = entries[-1].seq
        self._hooks.tell(events, self.state)
        self._feed.publish(
            Commit(
                self.seq,
                entries,
                frozenset(row.id for row in jobs),
                frozenset(row.name for row in nodes)
                | {member for row in jobs for member in self._nodes_of(row.id)},
            )
        )

    async def _write(self, batch: Batch) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.store.commit, batch)

    def _nodes_of(self, job: int) -> tuple[str, ...]:
        known = self.state.jobs.get(job)
        return tuple(known.members) if known is not None else ()

    def _can_set_aside(self, taken: list[Asked], failure: Exception, before: int) -> bool:
        """Is it a bug that something in the batch has met, with nothing of it on disk? And not too often?"""
        blamed = any(not isinstance(given, inputs.ControllerStarted) for given, _ in taken)
        if isinstance(failure, StoreFailure) or self.seq != before or not blamed:
            return False
        now = time.monotonic()
        often = len(self.mishaps) == MISHAPS and now - self.mishaps[0] < LOOK_S
        self.mishaps.append(now)
        return not often

    async def _set_aside(self, taken: list[Asked], alone: bool, failure: Exception) -> None:
        """Begin anew from what is on disk, and find who met it: that one alone pays for our bug."""
        culprit = ""
        if not alone:
            self._inbox.extendleft(reversed(taken))
            self._careful = len(taken) + 1  # the start itself comes first
        else:
            [(given, answer)] = taken
            log.error("what came in met a bug and was set aside: %.500s", given, exc_info=failure)
            culprit = getattr(given, "node", "") if answer is None else ""
            _refuse(taken, failure)
        self._recover()
        await self._meet_again(but=culprit)

    async def _meet_again(self, but: str = "") -> None:
        """Have all agents tell everything; one of them not before it has rested."""
        for link in self.links.values():
            await link.close()
            if link.name != but:
                link.open(self._deliver)
        if but in self.links:
            self._begin_silence(but)
            self.tell(
                inputs.LinkWentDown(but, "what it said met a bug in the controller, whose log says more")
            )
            asyncio.get_running_loop().call_later(REST_S, self._open_again, self.links[but])

    def _open_again(self, link: NodeLink) -> None:
        if self.links.get(link.name) is link and not self._stopping:
            link.open(self._deliver)

    def _retreat(self, failure: StoreHeldUp) -> None:
        """The store takes nothing: go back to what it has, and take nothing more for now."""
        log.error("%s. %s", failure.message, failure.hint)
        self._held = failure
        if not failure.adrift:
            self._recover()

    async def _await_store(self) -> None:
        """Write what is there already until that goes well; then the agents tell everything again."""
        while not self._stopping:
            await asyncio.sleep(HELD_PAUSE_S)
            with suppress(StoreHeldUp):
                await self._resume()
                break
        else:
            return  # told to stop meanwhile: what came in is not on disk, and will be asked or told again
        self._held = None
        log.info("the store takes work again")
        await self._meet_again()

    async def _resume(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.store.resume)
        await self._write(self._probe)
        if self._held is not None and self._held.adrift:
            self._recover()


def _refuse(taken: Iterable[Asked], failure: Exception) -> None:
    """Nothing came of these, and nothing will."""
    for _, answer in taken:
        if answer is not None and not answer.done():
            answer.set_exception(failure)
            answer.exception()  # whoever asked may be gone: not worth a warning


def entry_of(seq: int, event: Event) -> Entry:
    """The event as a journal entry."""
    return Entry(
        seq=seq,
        at=event.at,
        kind=type(event).__name__,
        job=event.job if isinstance(event, JobEvent) else None,
        node=event.node if isinstance(event, NodeEvent) else getattr(event, "node", None),
        body=body_of(event),
    )
