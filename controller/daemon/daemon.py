"""The controller's main loop, which connects the engine, the store, the agents and the API."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TypeVar

from controller.commit_feed import Commit, CommitFeed, Subscription
from controller.config import Config
from controller.core.accounting.cluster_accounting import ClusterAccounting
from controller.core.accounting.wait_alarms import WaitAlarms
from controller.core.engine import Engine
from controller.core.lifecycle.attempt_reports import merge_member_reports
from controller.core.model.decision.decision import Refusal, Reply
from controller.core.model.decision.effects import Effect
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.controller import PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.events.kinds import event_of
from controller.core.model.inputs import controller_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER
from controller.core.model.rows import Batch, JournalEntry, UsageRow
from controller.core.pipeline.pipeline import Pipeline
from controller.core.rebalance.rebalancer import AUTO
from controller.core.state.note_rows import clear_note_changes
from controller.core.state.state import State
from controller.core.state.usage_records import usage_rows
from controller.daemon.agent_links import AgentLinks
from controller.daemon.clock import WallClock
from controller.daemon.inbox import Inbox, PendingInput, refuse
from controller.daemon.recovery import recover, show_connected
from controller.daemon.standby import Standby
from controller.daemon.store_threads import StoreThreads
from controller.engines.engines import Controller, Engines
from controller.nodes.leadership import Leadership
from controller.nodes.link_factory import LinkFactory
from controller.nodes.ssh.known_hosts import read_legacy_file
from controller.notify.notifier import Notifier
from controller.questions.engine_copy.client import EngineCopyClient
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.expected_times import ExpectedTimes, expected_times
from controller.questions.start_estimation import start_estimates
from controller.store.errors import StoreFailure, StoreUnavailable
from controller.store.store import Store
from controller.store.usage import UsageSum
from controller.user_turns import UserTurns
from controller.watchers.counters import ControllerCounters
from controller.watchers.data_paths import DataPathWatch
from controller.watchers.periodic_inputs import PeriodicInputs
from controller.watchers.placement_hooks import PlacementHooks
from controller.watchers.pulse import Pulse
from controller.watchers.retention import Retention
from wire.api.service.cluster import PulseSample
from wire.cluster.hosts import HostSpec

T = TypeVar("T")
PASS_SHARE = 0.5
"""The largest fraction of the main loop's time that scheduling cycles may take."""
STORE_RETRY_S = 1.0
LONG_WAITS_S = 60.0
"""Seconds between two searches for jobs that have waited much longer than usual."""
CLOCK_CHECK_S = 60.0
"""Seconds. The event loop reads the system clock at least this often, because the clock can be set while the
loop waits."""
LEASE_CHECK_S = 0.25
"""Seconds between two checks whether this controller may still act."""
SAMPLER = ""
"""The user name with which the controller asks the engine copy for estimated starts. No account has this
name.
"""
MAX_CRASHES_PER_MINUTE = 50
"""If the engine crashes more often than this within a minute, the controller stops."""
QUARANTINE_S = 60.0
"""Seconds for which an agent stays disconnected after its report has crashed the engine."""
MOST_USERS = 10_000
"""The most users that get a weekly notice about their jobs."""
LARGEST_JOBS = 200
"""For the weekly notice of a user, this many of the user's jobs are examined for idle GPUs: those with the
most GPU time.
"""

log = logging.getLogger("corral.daemon")


class Stopping(Exception):
    """Raised in the caller whose input arrives while the controller shuts down."""


class NotLeading(Exception):
    """Raised for an input to a controller that does not lead. `address` is the URL of the leader; empty if no
    controller leads at present.
    """

    def __init__(self, address: str) -> None:
        super().__init__(f"the leader is {address or 'not known'}")
        self.address = address


class Daemon:
    """Passes inputs to the engine and commits the resulting events. Replies to callers and orders to agents
    are sent only after the commit.

    A batch of inputs (`_process_batch`)
    1. Take a batch of inputs from the inbox. A new configuration is always a batch of its own.
    2. Pass each input to the engine, and collect the events, effects (orders to agents) and replies.
    3. If a scheduling cycle is due, pass a Tick to the engine, which starts jobs.
    4. Write all events and the changed rows of jobs and nodes in one transaction.
    5. Publish the commit to hooks, event streams and the engine copy.
    6. Reply to the callers, and send the effects to the agents.

    Invariant: a reply or an effect is sent only after its events are on disk. Cost: one fsync per batch.
    After a scheduling cycle of n seconds, the next cycle begins at least n seconds later. Example: 500
    submits arrive while a commit takes 8 ms. They are one batch: 500 inputs, one cycle, one commit, 500
    replies.

    Of several controllers on one PostgreSQL database, one leads. The others follow its journal
    (daemon/standby.py), answer read requests, and take no inputs. If the leader cannot renew its lease, it
    closes the connections to the agents, and takes no inputs until it has the lease again.
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
        self.crashes: deque[float] = deque(maxlen=MAX_CRASHES_PER_MINUTE)
        """The times (monotonic clock) of the last crashes of the engine."""
        self._clock = WallClock()
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
        """Follows the leader's journal; None if this controller leads."""
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
            self._usage_of_week,
        )
        self._pipeline = pipeline
        """The scheduling pipeline at the last commit. After a crash, the new engine starts with this
        pipeline.
        """
        self._inbox = Inbox()
        self._wake = asyncio.Event()
        self._in_batch = False
        self._settled_waiters: list[asyncio.Future[None]] = []
        self._stopping = False
        self._store_failure: StoreUnavailable | None = None
        self._pass_wanted = True
        self._next_pass = 0.0
        self._pass_waiters: list[asyncio.Future[int]] = []
        """The futures of the calls of run_pass() that wait for the next scheduling cycle."""
        self._recover()

        leader = Leadership(lambda: store.epoch, lambda: store.journal_head)
        self.hosts = LinkFactory(config, lambda: self.state.host_keys, self.cluster, leader)
        self._feed = CommitFeed()
        self.agents = AgentLinks(
            pipeline, lambda: self.state, self.now, self.tell, self._publish_node, self._lost_entry
        )
        self.engines = Engines(
            config,
            Controller(
                lambda: self.state,
                self.now,
                lambda: store.may_act,
                self.ask,
                self.agents.open,
                self.agents.close_link,
                self.remove_node,
                store.id,
                self.cluster,
            ),
        )
        self._hooks = PlacementHooks(pipeline.hooks)
        self._start_estimates = PeriodicInputs(
            "starts", config.backfill.score_starts_s, self._estimate_starts, self.tell
        )
        self._long_waits = PeriodicInputs("waits", LONG_WAITS_S, self._find_long_waits, self.tell)
        self._rebalancing = PeriodicInputs(
            "rebalance", _rebalance_every_s(pipeline), self._order_rebalancing, self.tell
        )
        self.pulse = Pulse(
            lambda: self.engine, lambda: self.agents.readings, self.now, self.settled, self._publish_pulse
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

    @property
    def store_problem(self) -> str:
        """The reason why the store cannot be written, such as "database locked"; "" if the store can be
        written.
        """
        return self._store_failure.trouble if self._store_failure is not None else ""

    # --- methods for the API and the watchers ---

    async def ask(self, given: Input) -> Reply:
        """Pass an input to the engine. Return the reply after the events of the input are on disk."""
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
        placed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pass_waiters.append(placed)
        self._pass_wanted, self._next_pass = True, 0.0
        self._wake.set()
        return await placed

    def refuse_unless_leading(self) -> None:
        """Raise NotLeading if this controller is a standby."""
        if self.standby is not None:
            raise NotLeading(self.standby.leader.address if self.standby.leader is not None else "")

    def _refuse_unless_working(self) -> None:
        """Raise an exception if this controller takes no inputs at present."""
        if self._stopping:
            raise Stopping("the controller is shutting down")
        self.refuse_unless_leading()
        if self._store_failure is not None:
            raise self._store_failure

    async def settled(self) -> None:
        """Wait until all changes of the engine's state are on disk. Raise StoreUnavailable if the changes
        cannot be written."""
        while self._in_batch:
            waiter = asyncio.get_running_loop().create_future()
            self._settled_waiters.append(waiter)
            await waiter
        if self._store_failure is not None and self._store_failure.adrift:
            raise self._store_failure

    def announce(self, url: str) -> None:
        """Tell the other controllers of the store at which URL clients reach this one."""
        self.url = url
        self.holder = self.store.announce(url)

    def subscribe(self, *, pulse: bool = False) -> Subscription:
        """Return a subscription to all later commits. With `pulse`, the subscription also receives the
        samples of the cluster's figures (load, power, queue length).
        """
        return self._feed.subscribe(pulse=pulse)

    async def add_node(self, name: str, host: HostSpec, by: str) -> Reply:
        """Add a node, or change the host settings of an existing node. Attempts on an existing node
        continue."""
        reply = await self.ask(node_inputs.AddNode(name, host.labels, host, by))
        if not isinstance(reply, Refusal):
            await self.agents.close_link(name)
            self.agents.open(self.hosts.link(name, host))
        return reply

    async def remove_node(self, name: str, by: str) -> Reply:
        """Remove a node. If the engine does not refuse the removal, also close the connection to the node's
        agent."""
        reply = await self.ask(node_inputs.RemoveNode(name, by))
        if not isinstance(reply, Refusal):
            await self.agents.remove_node(name)
        return reply

    async def import_host_keys(self) -> None:
        """Pin the SSH host keys from the file of an older controller version, then rename the file."""
        path = self.config.state_dir / "known_hosts"
        nodes = {*self.config.nodes, *self.state.nodes.by_name}
        for node, key in read_legacy_file(path).items():
            if node in nodes and node not in self.state.host_keys:
                await self.ask(node_inputs.PinKey(node, key, path.name))
        if path.exists():
            path.rename(path.with_name(f"{path.name}.imported"))

    def reconfigure(self, config: Config) -> None:
        """Apply a configuration to everything but the engine, which uses the configuration already:
        connections to agents, questions, hooks, notifications and background tasks.
        """
        pipeline, waiting = self.engine.pipeline, config.scheduler.waiting
        self.config = config
        self.hosts.config = config
        self.agents.reconfigure(pipeline)
        self.questions.reconfigure(config)
        self._data_paths.reconfigure(waiting.data_roots, waiting.data_check_s)
        self._hooks.reconfigure(pipeline.hooks)
        self.notifier.reconfigure(config)
        self._start_estimates.reconfigure(config.backfill.score_starts_s)
        self._rebalancing.reconfigure(_rebalance_every_s(pipeline))

    # --- the main loop ---

    async def run(self) -> None:
        """Process batches of inputs until stop() is called and the inbox is empty. If another controller
        leads, first follow its journal until this controller leads.

        1. Wait for an input, or until a scheduling cycle or a timer of the engine is due.
        2. Process one batch.
        3. If the store cannot be written: refuse the batch, load the state on disk again, wait for the store.
        4. If an input crashed the engine: find that input, refuse it, and disconnect its agent if an agent
           sent it.
        5. Wake the callers that wait in settled().
        """
        if self.standby is not None and not await self._lead():
            return
        lease_watch = asyncio.create_task(self._watch_lease())
        try:
            await self._work()
        finally:
            lease_watch.cancel()
        # Let another controller lead before this controller closes its connections.
        await self._store_threads.write(self.store.release)

    async def _work(self) -> None:
        self._rebalancing.open()
        self.agents.start()
        self._start_estimates.open()
        self._long_waits.open()
        self.pulse.open()
        self.notifier.open()
        self._retention_task = asyncio.create_task(self.retention.run())
        while self._inbox or not self._stopping:
            if not self._inbox and not self._pass_due():
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), self._seconds_until_due())
                except TimeoutError:
                    continue
            self._in_batch = True
            one_by_one, batch, seq_before = self._inbox.one_by_one, self._inbox.take_batch(), self.seq
            if one_by_one:
                # Run a scheduling cycle after each input, because the crash may occur in a cycle.
                self._next_pass = 0.0
            try:
                if self._store_failure is not None:
                    # The lease could not be renewed while this loop waited.
                    raise self._store_failure
                await self._process_batch(batch)
            except StoreUnavailable as failure:
                refuse(batch, failure)
                self._suspend(failure)
            except Exception as failure:
                if not self._may_quarantine(batch, failure, seq_before):
                    reason = failure if isinstance(failure, StoreFailure) else Stopping("failed")
                    refuse([*batch, *self._inbox], reason)
                    raise
                await self._quarantine(batch, one_by_one, failure)
            finally:
                self._in_batch = False
                self._wake_settled()
            self._data_paths.wake()
            # Let other tasks run, so that callers that waited for this commit read the state before the next
            # batch changes it.
            await asyncio.sleep(0)
            if self._store_failure is not None:
                await self._wait_for_store()
                if self._store_failure is not None:
                    # End the loop, because stop() was called before the store could be written.
                    refuse(self._inbox, self._store_failure)
                    return

    def stop(self) -> None:
        """Accept no more requests. run() ends when the inputs that have already arrived are processed."""
        self._stopping = True
        if self.standby is not None:
            self.standby.stop()
        if self._retention_task is not None:
            self._retention_task.cancel()
        self._rebalancing.close()
        self.agents.stop()
        self._start_estimates.close()
        self._long_waits.close()
        self.pulse.close()
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
        self._recover()
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
        events = [event_of(entry.kind, entry.body) for entry in entries]
        self.engine.follow(events)
        # Forget which rows have changed, because the leader writes them.
        clear_note_changes(self.state)
        self.state.used = []
        self.seq = entries[-1].seq
        self._clock.continue_from(entries[-1].at)
        self.questions.forget()
        jobs = frozenset(
            entry.job for entry in entries if entry.job is not None and entry.job in self.state.jobs
        )
        nodes = {entry.node for entry in entries if entry.node is not None}
        nodes |= {node for job in jobs for node in self.state.jobs[job].members}
        self._feed.publish(Commit(self.seq, tuple(entries), jobs, frozenset(nodes)))

    async def _reload(self) -> None:
        """Load the whole state from the database again."""
        await self.read(self.store.refresh)
        self._recover()

    async def _watch_lease(self) -> None:
        """If the lease was not renewed in time, close the connections to the agents. When this controller has
        the lease again, run() loads the state again.
        """
        while True:
            await asyncio.sleep(LEASE_CHECK_S)
            if self._store_failure is None and not self.store.may_act:
                log.error("the lease of the leader could not be renewed: this controller stops acting")
                self._store_failure = self.store.stop_acting()
                self._pass_wanted, self._next_pass = True, 0.0
                self._wake.set()
                await self.agents.disconnect_all()

    def _lost_entry(self, remembered: str) -> str:
        """Return the reason to refuse an agent that remembers this journal entry; "" to accept the agent."""
        try:
            lost = self.store.lost_entry(remembered)
        except StoreFailure as failure:
            return failure.message
        if not lost:
            return ""
        return (
            f"the database went back in time: the node has been told of journal entry {lost}, which the "
            "database does not have. Restore the newest database, or stop all controllers and run "
            "'corral admin accept-loss'"
        )

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until a scheduling cycle or a timer of the engine is due; None if there is
        nothing to do before the next input."""
        pause = self._next_pass - time.monotonic()
        if self._pass_wanted:
            return pause
        due = self.engine.next_at
        return None if due == NEVER else max(pause, min(due - self.now(), CLOCK_CHECK_S))

    def _pass_due(self) -> bool:
        wanted = self._pass_wanted or self.engine.next_at <= self.now()
        return wanted and time.monotonic() >= self._next_pass

    def _wake_settled(self) -> None:
        waiters, self._settled_waiters = self._settled_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _estimate_starts(self) -> list[controller_inputs.NoteStart]:
        """Return inputs that record the estimated starts of a few waiting jobs without an estimate. When such
        a job starts, the engine compares its start with the estimate (`corral report starts`). Estimates that
        `corral explain` computes for users are not recorded.

        The engine copy, a separate process, computes the estimates, so that submits are not delayed. The list
        is empty if no job waits, or if the engine copy has too many other questions to answer.
        """
        if not len(self.state.queue) or self._store_failure is not None:
            return []
        with suppress(QuestionRefused):
            asked = self.questions.ask(SAMPLER, start_estimates, now=self.now, keep_copy=False)
            return await asked or []
        return []

    async def _find_long_waits(self) -> list[Input]:
        """Return an input for each waiting job that has waited much longer than usual."""
        await self.settled()
        return [*self.wait_alarms.due(self.state, self.config.scheduler.wait_alarm, self.now())]

    async def _order_rebalancing(self) -> list[Input]:
        return [policy_inputs.Rebalance(AUTO)]

    # --- processing of one batch of inputs ---

    async def _process_batch(self, batch: list[PendingInput]) -> None:
        """Pass a batch of inputs to the engine, commit the events, and send replies and orders (steps 2 to 6
        in the docstring of the class)."""
        events: list[Event] = []
        effects: list[Effect] = []
        replies: list[tuple[asyncio.Future[Reply], Reply]] = []
        self.accounting.advance(self.engine, self.now())
        handled: list[tuple[Input, float]] = []
        waiters: list[asyncio.Future[int]] = []
        placed = 0
        try:
            # Pass each input to the engine (step 2 of the class docstring).
            for given, future in merge_member_reports(batch):
                handled.append((given, self.now()))
                decision = self.engine.handle(*handled[-1])
                events += decision.events
                effects += decision.effects
                if future is not None:
                    replies.append((future, decision.reply))
            self._pass_wanted = self._pass_wanted or bool(events)
            # Run a scheduling cycle (step 3 of the class docstring).
            if self._pass_due():
                began = time.monotonic()
                handled.append((Tick(), self.now()))
                decision = self.engine.handle(*handled[-1])
                events += decision.events
                effects += decision.effects
                ended = time.monotonic()
                placed = sum(isinstance(event, JobPlaced) for event in decision.events)
                self.counters.passed(handled[-1][1], ended - began, placed)
                waiters, self._pass_waiters = self._pass_waiters, []
                self.notifier.pass_took(ended - began, self.now())
                self._next_pass = ended + (ended - began) * (1 / PASS_SHARE - 1)
                self._pass_wanted = False
            if events:
                # Write and publish the events (steps 4 and 5 of the class docstring).
                await self._commit(tuple(events))
            self.questions.committed(handled, events, self.seq)
        except asyncio.CancelledError:
            refuse(batch, Stopping("failed"))
            raise
        except Exception as failure:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(failure)
            raise
        # Reply to the callers, then send the orders (step 6 of the class docstring).
        for future, reply in replies:
            if not future.done():
                future.set_result(reply)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(placed)
        for effect in effects:
            for order in effect.orders():
                # Look at the lease before each order, because this process may have been stopped since the
                # commit. The next leader makes the order again.
                if self.store.may_act:
                    self.agents.send(order)

    async def _usage_of_week(self, since: float, until: float, user: str) -> list[UsageSum]:
        """Return the usage of each user between two times. If `user` is given, return the usage of each of
        this user's jobs with the most usage instead.
        """
        by, most = ("job", LARGEST_JOBS) if user else ("user", MOST_USERS)
        running = self.running_usage_rows(self.now())
        ask = partial(self.store.usage, by, since, until, most, running, {"user": user} if user else {})
        return (await self.report(ask))[0]

    def running_usage_rows(self, now: float) -> list[UsageRow]:
        """Return usage records of the running attempts, as if the attempts ended at `now`. For a report, the
        store counts only the usage inside the time window of the report.
        """
        use = self.agents.running_usage
        jobs = (self.state.jobs[number] for _, number in self.state.releases)
        return [row for job in jobs for row in usage_rows(job, now, use.of(job))]

    async def _commit(self, events: tuple[Event, ...]) -> None:
        """Write the events to the store, then publish the commit to hooks and event streams."""
        for event in events:
            if isinstance(event, PluginFailed):
                log.warning("the %s %s failed: %s", event.kind, event.name, event.why)
        began = time.monotonic()
        self.accounting.observe(self.state, events, events[-1].at)
        self.pulse.observe(self.state, events)
        self.wait_alarms.observe(self.state, events)
        figures = self.accounting.take_changed(events[-1].at)
        if figures:
            figures += self.wait_alarms.take_changed()
        figures += self.notifier.prepare(self.state, self.seq, events, self.engine.pipeline.failures)
        batch = await self._store_threads.commit(self.state, self.seq, events, figures)
        self.counters.observe(self.state, events)
        self.counters.committed(len(batch.entries), time.monotonic() - began)
        self.state.forget_old()
        self.seq = batch.entries[-1].seq
        self._pipeline = self.engine.pipeline
        self.notifier.committed()
        self._hooks.tell(events, self.state)
        jobs = self.state.jobs
        self._feed.publish(
            Commit(
                self.seq,
                batch.entries,
                frozenset(row.id for row in batch.jobs),
                frozenset(row.name for row in batch.nodes)
                | {node for row in batch.jobs if row.id in jobs for node in jobs[row.id].members},
            )
        )

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
        self._pass_wanted = True

    def _may_quarantine(self, batch: list[PendingInput], failure: Exception, seq_before: int) -> bool:
        """Count a crash of the engine. Return whether the controller must find the input of the batch that
        caused the crash.

        If the result is False, the controller stops. It is False if the store failed, if events of the batch
        are on disk already, if the batch has no input but ControllerStarted, or if the engine has crashed too
        often in the last minute.
        """
        blamed = any(not isinstance(given, controller_inputs.ControllerStarted) for given, _ in batch)
        if isinstance(failure, StoreFailure) or self.seq != seq_before or not blamed:
            return False
        now = time.monotonic()
        often = len(self.crashes) == MAX_CRASHES_PER_MINUTE and now - self.crashes[0] < 60.0
        self.crashes.append(now)
        return not often

    async def _quarantine(self, batch: list[PendingInput], one_by_one: bool, failure: Exception) -> None:
        """Find and refuse the input that crashed the engine, so that only the sender of this input is
        affected.

        1. If the batch was not taken one by one, put its inputs back, so that each is processed alone.
        2. If it was, the batch is the input that crashed the engine. Refuse it. If an agent sent it,
           disconnect this agent for QUARANTINE_S.
        3. Load the state on disk again, because the engine may have stopped in the middle of a change.
        4. Reconnect all agents, so that each sends all its reports again: reports that were not on disk are
           lost with the old state.
        """
        culprit = ""
        if not one_by_one:
            self._inbox.put_back(batch)
        else:
            [(given, future)] = batch
            log.error("an input crashed the engine and is quarantined: %.500s", given, exc_info=failure)
            culprit = getattr(given, "node", "") if future is None else ""
            refuse(batch, failure)
        self._recover()
        why = "its report caused an internal error of the controller; see the controller's log"
        await self.agents.reconnect_all(later=culprit, later_s=QUARANTINE_S, why=why)

    def _suspend(self, failure: StoreUnavailable) -> None:
        """Stop processing inputs until the store can be written. Load the state on disk again. If it is
        unknown whether the last commit is on disk (`adrift`), _wait_for_store() does this later.
        """
        log.error("%s. %s", failure.message, failure.hint)
        self._store_failure = failure
        if not failure.adrift:
            self._recover()

    async def _wait_for_store(self) -> None:
        """Try to write to the store every STORE_RETRY_S seconds. After a success, reconnect all agents.

        If stop() is called first, return and leave `_store_failure` set.
        """
        while not self._stopping:
            await asyncio.sleep(STORE_RETRY_S)
            with suppress(StoreUnavailable):
                await self._store_threads.write(self.store.resume)
                await self._store_threads.write(lambda: self.store.commit(self._node_rows))
                if self._store_failure is not None and self._store_failure.adrift:
                    self._recover()
                self._store_failure = None
                log.info("the store can be written again")
                await self.agents.reconnect_all()
                return


def _rebalance_every_s(pipeline: Pipeline) -> float:
    """Return the seconds between two automatic rebalancings; 0 if only operators order rebalancing."""
    rules = pipeline.rebalance
    return rules.interval_s if rules.mode == "auto" else 0.0
