"""The controller's main loop, which connects the engine, the store, the agents and the API."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from typing import TypeVar

from controller.commit_feed import Commit, CommitFeed, Subscription
from controller.config import Config
from controller.core.accounting.cluster_accounting import ClusterAccounting
from controller.core.accounting.wait_alarms import WaitAlarms
from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.engine import Engine
from controller.core.lifecycle.attempt_reports import merge_member_reports
from controller.core.model.decision.decision import Reply
from controller.core.model.events.event import Event
from controller.core.model.inputs import controller_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.rows import Batch, JournalEntry
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.daemon.agent_links import AgentLinks
from controller.daemon.background_inputs import SAMPLER, BackgroundInputs
from controller.daemon.batches.commit_barrier import CommitBarrier
from controller.daemon.batches.commits import Commits
from controller.daemon.batches.cycle_timer import CycleTimer
from controller.daemon.batches.inbox import Inbox, PendingInput, refuse
from controller.daemon.batches.outgoing import Outgoing, placed_jobs
from controller.daemon.batches.quarantine import Quarantine
from controller.daemon.clock import WallClock
from controller.daemon.node_changes import NodeChanges
from controller.daemon.recovery import recover, show_connected
from controller.daemon.refusals import NotLeading, Stopping
from controller.daemon.shared_store import StrayAttempts, apply_entries, watch_lease, why_entry_is_lost
from controller.daemon.standby import Standby
from controller.daemon.store_outage import STORE_RETRY_S, StoreOutage
from controller.daemon.store_threads import StoreThreads
from controller.daemon.usage_reports import UsageReports
from controller.engines.engines import Controller, Engines
from controller.engines.pools.scale_out import Demand
from controller.nodes.leader_epoch import Leadership
from controller.nodes.link_factory import LinkFactory
from controller.notify.notifier import Notifier
from controller.questions.engine_copy.client import EngineCopyClient
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.expected_times import ExpectedTimes, expected_times
from controller.questions.pool_demand import pool_demand
from controller.store.errors import StoreAway, StoreFailure, StoreUnavailable
from controller.store.store import Store
from controller.user_turns import UserTurns
from controller.watchers.counters import ControllerCounters
from controller.watchers.data_paths import DataPathWatch
from controller.watchers.placement_hooks import PlacementHooks
from controller.watchers.pulse import Pulse
from controller.watchers.retention import Retention
from controller.watchers.self_watch import SelfWatch
from wire.api.service.cluster import PulseSample

T = TypeVar("T")
log = logging.getLogger("corral.daemon")


class Daemon:
    """Passes inputs to the engine and commits the resulting events. Replies to callers and orders to agents
    are sent only after the commit.

    A batch of inputs (`_process_batch`)
    1. Take a batch of inputs from the inbox. A new configuration is always a batch of its own.
    2. Pass each input to the engine, and collect the events, effects (orders to agents) and replies.
    3. If a scheduling cycle is due, pass a Tick to the engine, which starts jobs.
    4. Write all events and the changed rows of jobs, nodes and notes (other state) in one transaction.
    5. Publish the commit to hooks, event streams and the engine copy.
    6. Reply to the callers, and send the effects to the agents.

    Invariant: a reply or an effect is sent only after its events are on disk. Cost: one commit (disk sync)
    per batch. After a scheduling cycle of n seconds, the next cycle begins at least n seconds later. Example:
    500 submits arrive while a commit takes 8 ms. They are one batch: 500 inputs, one cycle, one commit, 500
    replies.

    If several controllers use one PostgreSQL database, one of them leads. The other controllers follow its
    journal (daemon/standby.py), answer read requests, and take no inputs. If the leader cannot renew its
    lease, it closes the connections to the agents, and takes no inputs until it has the lease again.
    """

    def __init__(self, config: Config, pipeline: Pipeline, store: Store) -> None:
        self.config = config
        self.store = store
        self.started_at = time.time()
        self.cluster = f"{store.id}@{socket.gethostname()}"
        """The name by which agents recognise their controller: the id of the store and the host name."""
        self.engine: Engine
        self.seq = 0
        """The number of the last journal entry on disk."""
        self.counters = ControllerCounters()
        self.accounting = ClusterAccounting()
        """For each tenant, the GPU-hours that it got and that it was entitled to. Also the idle GPU-hours by
        cause. Used by reports and metrics.
        """
        self.wait_alarms = WaitAlarms()
        self.report_turns = UserTurns(1)
        self.verify_turns = UserTurns(1)
        self.questions = EngineCopyClient(config, lambda: self.engine, lambda: self.seq, self.settled)
        self.expected_times = ExpectedTimes(
            lambda: self.questions.ask(SAMPLER, expected_times, now=self.now, keep_copy=False)
        )
        self._clock = WallClock(store.time_s)
        self.now = self._clock.now
        """Seconds since 1970; never goes back."""
        self._store_threads = StoreThreads(store)
        self.url = ""
        """The URL at which clients reach this controller."""
        self.holder = ""
        """The name of this process among the controllers of the store; "" if the store can have only one."""
        self.led = asyncio.Event()
        """Set while this controller leads. A controller that is the only one of its store always leads."""
        self.standby: Standby | None = None
        """The object that follows the leader's journal; None if this controller leads."""
        if store.leading:
            self.led.set()
        else:
            self.standby = Standby(store, self._store_threads, self._follow, self._reload)
        self.read = self._store_threads.read
        self.report = self._store_threads.report
        self.notifier = Notifier(
            config,
            store.id,
            self.now,
            lambda rows: self._store_threads.write(lambda: store.commit(Batch((), (), (), tuple(rows)))),
            lambda: self.state,
            lambda since, until, user: self.usage.of_week(since, until, user),
        )
        self._pipeline = pipeline
        """The scheduling settings at the last commit. After a crash of the engine, the new engine starts with
        them.
        """
        self._inbox = Inbox()
        self._wake = asyncio.Event()
        self._barrier = CommitBarrier()
        self._stopping = False
        self.outage = StoreOutage(store, self._store_threads, self._recover, lambda: self._node_rows)
        self._cycles = CycleTimer(lambda: self.engine.next_at, self.now)
        self._recover()

        leader = Leadership(lambda: store.epoch, lambda: store.journal_head)
        self.hosts = LinkFactory(config, lambda: self.state.host_keys, self.cluster, leader)
        self._feed = CommitFeed()
        self._strays = StrayAttempts(lambda: self.state)
        self.agents = AgentLinks(
            pipeline,
            lambda: self.state,
            self.now,
            self.tell,
            self._publish_node,
            partial(why_entry_is_lost, store),
            self._strays,
        )
        self.quarantine = Quarantine(self._inbox, self.agents, self._recover)
        self.node_changes = NodeChanges(self.ask, self.agents, self.hosts)
        self.usage = UsageReports(store, self._store_threads, lambda: self.state, self.agents, self.now)
        self.engines = Engines(
            config,
            Controller(
                lambda: self.state,
                self.now,
                lambda: store.may_act,
                self.ask,
                self.agents.open,
                self.agents.close_link,
                self.node_changes.remove,
                store.id,
                self.cluster,
                self._simulate_demand,
                leader,
            ),
        )
        self._hooks = PlacementHooks(pipeline.hooks)
        self._background = BackgroundInputs(
            config,
            pipeline,
            lambda: self.state,
            self.now,
            self.wait_alarms,
            self.questions,
            lambda: self.outage.failure is None,
            self.settled,
            self.tell,
        )
        self.watch = SelfWatch(self.counters, self._is_cycle_due)
        self.pulse = Pulse(
            lambda: self.engine,
            lambda: self.agents.readings,
            self.now,
            self.settled,
            self._publish_pulse,
            lambda: self.watch.alarms,
        )
        self._commits = Commits(
            self._store_threads,
            self.counters,
            self.accounting,
            self.wait_alarms,
            self.pulse,
            self.notifier,
            self._hooks,
            self._feed,
        )
        waiting = config.scheduler.waiting
        self._data_paths = DataPathWatch(
            waiting.data_roots,
            waiting.data_check_s,
            lambda: self.engine.due_jobs.dependencies.data_paths,
            lambda path: self.tell(controller_inputs.DataFound(path)),
        )
        self.retention = Retention(
            lambda: self.config.retention, store, self._store_threads.write, self.read, self.ask
        )
        self._retention_task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Return the engine's state, which may contain changes that are not on disk yet. A caller that needs
        only changes on disk awaits settled() first.
        """
        return self.engine.state

    # --- methods for the API and the background tasks ---

    async def ask(self, given: Input) -> Reply:
        """Pass an input to the engine. Return the reply when the events of the input are on disk. Raise an
        exception if this controller takes no inputs at present, or cannot write the events.
        """
        self._refuse_unless_working()
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._inbox.put(given, reply)
        self._wake.set()
        return await reply

    def tell(self, given: Input) -> None:
        """Pass an input to the engine without waiting for its reply. Do nothing in a standby."""
        if self.standby is not None:
            return
        self._inbox.put(given)
        self._wake.set()

    async def run_pass(self) -> int:
        """Run a scheduling cycle at once. Return the number of jobs that the cycle placed, after the events
        of the cycle are on disk.
        """
        self._refuse_unless_working()
        placed = self._cycles.request()
        self._wake.set()
        return await placed

    def refuse_unless_leading(self) -> None:
        """Raise NotLeading if this controller is a standby."""
        if self.standby is not None:
            raise NotLeading(leads=self.standby.leader is not None)

    def _refuse_unless_working(self) -> None:
        """Raise an exception if this controller takes no inputs at present."""
        if self._stopping:
            raise Stopping("the controller is shutting down")
        self.refuse_unless_leading()
        if self.outage.failure is not None:
            raise self.outage.failure

    async def settled(self) -> None:
        """Wait until the batch that is being processed is on disk or refused. Raise StoreUnavailable if it is
        unknown which changes are on disk, because the database server does not answer.
        """
        await self._barrier.wait()
        if self.outage.failure is not None and self.outage.failure.adrift:
            raise self.outage.failure

    @property
    def problem(self) -> str:
        """Return the reason why this controller takes no work, such as "disk full"; empty if it does."""
        return self.outage.problem or self.watch.stuck

    def _is_cycle_due(self) -> bool:
        """Return whether a scheduling cycle is due that nothing but the main loop delays."""
        return self.standby is None and self.outage.failure is None and self._cycles.is_due()

    def announce(self, url: str) -> None:
        """Tell the other controllers of the store at which URL clients reach this one."""
        self.url = url
        self.holder = self.store.announce(url)

    async def _simulate_demand(
        self, pending: tuple[HypotheticalNodes, ...], asked: tuple[HypotheticalNodes, ...], within_s: float
    ) -> tuple[Demand, ...] | None:
        try:
            return await self.questions.ask(
                SAMPLER, pool_demand, pending, asked, now=self.now, within_s=within_s, keep_copy=False
            )
        except QuestionRefused:
            return None

    def subscribe(self, *, pulse: bool = False) -> Subscription:
        """Return a subscription to all later commits. With `pulse`, the subscription also receives the
        samples of the cluster's figures (load, power, queue length).
        """
        return self._feed.subscribe(pulse=pulse)

    def reconfigure(self, config: Config) -> None:
        """Apply a configuration that the engine uses already to all other parts of the daemon, such as
        connections to agents, hooks, notifications and background tasks.
        """
        pipeline, waiting = self.engine.pipeline, config.scheduler.waiting
        self.config = config
        self.hosts.config = config
        self.agents.reconfigure(pipeline)
        self.questions.reconfigure(config)
        self._data_paths.reconfigure(waiting.data_roots, waiting.data_check_s)
        self._hooks.reconfigure(pipeline.hooks)
        self.notifier.reconfigure(config)
        self._background.reconfigure(config, pipeline)

    # --- the main loop ---

    async def run(self) -> None:
        """Process batches of inputs until stop() is called and the inbox is empty. If another controller
        leads, first follow its journal until this controller leads.

        1. Wait for an input, or until a scheduling cycle or a timer of the engine is due.
        2. Process one batch.
        3. If the store cannot be written: refuse the batch, load the state on disk again, and wait until a
           write succeeds.
        4. If an input crashed the engine: find that input, refuse it, and disconnect its agent if an agent
           sent it.
        5. Wake the callers that wait in settled().
        """
        self.watch.open()
        if self.standby is not None and not await self._lead():
            return
        lease_watch = asyncio.create_task(
            watch_lease(self.store, lambda: self.outage.failure is None, self._stop_acting)
        )
        try:
            await self._work()
        finally:
            lease_watch.cancel()
        # Let another controller lead before this controller closes its connections.
        await self._store_threads.write(self.store.release)

    async def _work(self) -> None:
        self._background.open()
        if self.store.accepted_loss:
            self._strays.begin()
        self.agents.start()
        self.pulse.open()
        self.notifier.open()
        self._retention_task = asyncio.create_task(self.retention.run())
        while self._inbox or not self._stopping:
            if not self._inbox and not self._cycles.is_due():
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), self._cycles.seconds_until_due())
                except TimeoutError:
                    continue
            self._barrier.close()
            one_by_one, batch, seq_before = self._inbox.one_by_one, self._inbox.take_batch(), self.seq
            if one_by_one:
                # Run a scheduling cycle after each single input, because the crash may have occurred in a
                # cycle.
                self._cycles.earliest = 0.0
            try:
                if self.outage.failure is not None:
                    # Refuse the batch, because the lease could not be renewed while this loop waited.
                    raise self.outage.failure
                await self._process_batch(batch)
            except StoreUnavailable as failure:
                refuse(batch, failure)
                self.outage.begin(failure)
            except Exception as failure:
                if not self.quarantine.may_begin(batch, failure, committed=self.seq != seq_before):
                    reason = failure if isinstance(failure, StoreFailure) else Stopping("failed")
                    refuse([*batch, *self._inbox], reason)
                    raise
                await self.quarantine.begin(batch, one_by_one, failure)
            finally:
                self._barrier.open()
            self._data_paths.wake()
            # Let other tasks run, so that callers that waited for this commit read the state before the next
            # batch changes it.
            await asyncio.sleep(0)
            if self.outage.failure is not None:
                if not await self.outage.end(lambda: self._stopping):
                    # End the loop, because stop() was called before the store could be written.
                    refuse(self._inbox, self.outage.failure)
                    return
                await self.agents.reconnect_all()

    def stop(self) -> None:
        """Accept no more requests. run() ends when the inputs that have already arrived are processed."""
        self._stopping = True
        if self.standby is not None:
            self.standby.stop()
        if self._retention_task is not None:
            self._retention_task.cancel()
        self._background.close()
        self.agents.stop()
        self.pulse.close()
        self.watch.close()
        self._wake.set()

    async def close(self) -> None:
        """Close the connections, the threads and the store. Jobs on the nodes continue."""
        await self.engines.close()
        await asyncio.gather(self.questions.close(), self.agents.close(), self.notifier.close())
        self._data_paths.close()
        self._hooks.close()
        self._feed.close()
        self._store_threads.close()
        self.store.close()

    # --- leadership ---

    async def _lead(self) -> bool:
        """Follow the journal of the leader until this controller leads. Return False if stop() was called
        first.
        """
        assert self.standby is not None
        log.info("standby: another controller leads")
        if not await self.standby.run():
            return False
        self.standby = None
        while True:
            try:
                self._recover()
                break
            except StoreUnavailable as failure:
                log.warning("%s. %s", failure.message, failure.hint)
                await asyncio.sleep(STORE_RETRY_S)
        for warning in self.store.warnings:
            log.warning("the database server: %s", warning)
        log.info("this controller leads, with epoch %d and the journal at %d", self.store.epoch, self.seq)
        self.led.set()
        return True

    def _follow(self, entries: list[JournalEntry]) -> None:
        """Apply journal entries of the leader, and publish them to the event streams."""
        entries = [entry for entry in entries if entry.seq > self.seq]
        if not entries:
            return
        commit = apply_entries(self.engine, entries)
        self.seq = commit.seq
        self._clock.continue_from(entries[-1].at)
        self.questions.forget()
        self._feed.publish(commit)

    async def _reload(self) -> None:
        """Load the whole state from the database again."""
        await self.read(self.store.refresh)
        self._recover()

    async def _stop_acting(self, failure: StoreAway) -> None:
        """Process no inputs, and close the connections to the agents, because the lease was not renewed. When
        this controller has the lease again, run() loads the state again.
        """
        self.outage.failure = failure
        self._cycles.make_due()
        self._wake.set()
        await self.agents.disconnect_all()

    # --- processing of one batch of inputs ---

    async def _process_batch(self, batch: list[PendingInput]) -> None:
        """Pass a batch of inputs to the engine, commit the events, and send replies and orders (steps 2 to 6
        in the docstring of the class)."""
        self.accounting.advance(self.engine, self.now())
        outgoing = Outgoing()
        handled: list[tuple[Input, float]] = []
        try:
            # Pass each input to the engine (step 2 of the class docstring).
            for given, future in merge_member_reports(batch):
                handled.append((given, self.now()))
                outgoing.add(self.engine.handle(*handled[-1]), future)
            self._cycles.wanted = self._cycles.wanted or bool(outgoing.events)
            # Run a scheduling cycle (step 3 of the class docstring).
            if self._cycles.is_due() and self._strays.delay_starts:
                self._cycles.postpone()
            elif self._cycles.is_due():
                began = time.monotonic()
                handled.append((Tick(), self.now()))
                decision = self.engine.handle(*handled[-1])
                outgoing.add(decision)
                ended = time.monotonic()
                placed = placed_jobs(decision)
                self.counters.passed(handled[-1][1], ended - began, placed)
                outgoing.answer_cycle_requests(self._cycles.cycle_ended(began, ended), placed)
                self.notifier.pass_took(ended - began, self.now())
            if outgoing.events:
                # Write and publish the events (steps 4 and 5 of the class docstring).
                await self._commit(tuple(outgoing.events))
            self.questions.committed(handled, outgoing.events, self.seq)
        except asyncio.CancelledError:
            refuse(batch, Stopping("failed"))
            raise
        except Exception as failure:
            outgoing.fail(failure)
            raise
        # Reply to the callers, then send the orders (step 6 of the class docstring).
        outgoing.send(lambda: self.store.may_act, self.agents.send)

    async def _commit(self, events: tuple[Event, ...]) -> None:
        """Write the events to the store, then publish the commit to hooks and event streams."""
        batch = await self._commits.write(self.engine, self.seq, events)
        self.seq = batch.entries[-1].seq
        self._pipeline = self.engine.pipeline
        self._commits.publish(self.state, batch, events)

    def _publish_node(self, node: str) -> None:
        self._feed.publish(Commit(self.seq, (), frozenset(), frozenset({node})))

    def _publish_pulse(self, sample: PulseSample) -> None:
        self._feed.publish(Commit(self.seq, (), frozenset(), frozenset(), sample))

    # --- failures of the store and crashes of the engine ---

    def _recover(self) -> None:
        """Replace the engine by a new one with the state that is on disk."""
        self.questions.forget()
        recovered = recover(self.store, self._pipeline, self.config.controller.keep_ended)
        self.engine, self.seq, self._node_rows = recovered.engine, recovered.last_seq, recovered.node_rows
        # Put the input ControllerStarted before all other inputs, so that the journal first records that the
        # nodes are not connected.
        if recovered.nodes_lost and self.standby is None:
            self._inbox.put_first(controller_inputs.ControllerStarted(recovered.nodes_lost))
        elif self.standby is not None:
            show_connected(self.state, recovered.nodes_lost)
        self.accounting.load(self.state, recovered.notes)
        self.wait_alarms.load(recovered.notes)
        self.notifier.load(recovered.notes)
        self._clock.continue_from(recovered.last_at)
        self._cycles.wanted = True
