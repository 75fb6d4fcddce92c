"""Answers the frames (messages) of the controller for the nodes of one execution engine, as agents do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from controller.engines.contract import EngineCaps
from controller.engines.driver.attempt_requests import AttemptRequests
from controller.engines.driver.attempt_table import AttemptTable
from controller.engines.driver.engine_breaker import EngineBreaker
from controller.engines.driver.foreign_attempts import AttemptRecord, ForeignAttempt
from controller.engines.driver.foreign_logs import ForeignLogs
from controller.engines.driver.foreign_nodes import ForeignNodes
from controller.engines.engine_links import DelegateChannel
from controller.engines.unsupported_requests import unsupported_requests
from wire import VERSION
from wire.agent.frames import ControllerFrame
from wire.agent.orders import (
    CheckGpu,
    Go,
    OpenShell,
    Ping,
    ReadLog,
    ResetGpu,
    SearchLog,
    Settle,
    Start,
    Stop,
    StopReading,
    TimeLimit,
)
from wire.agent.reports import AttemptStatus, GpuChecked, GpuReset, Hello, Pong, Report, ShellEnded


class NodeChannels:
    """The open channels between the controller and the nodes of one engine."""

    def __init__(self) -> None:
        self._by_node: dict[str, DelegateChannel] = {}

    def add(self, channel: DelegateChannel) -> None:
        self._by_node[channel.node] = channel

    def remove(self, channel: DelegateChannel) -> None:
        if self._by_node.get(channel.node) is channel:
            del self._by_node[channel.node]

    def report(self, attempt: ForeignAttempt) -> None:
        """Report an attempt to the controller. Do nothing if its node is not connected, because the next
        hello of the node names the attempt.
        """
        channel = self._by_node.get(attempt.record.node)
        if channel is not None:
            channel.send(Report(attempt.record.status))

    def cut_unusable(self, problem: Callable[[str], str]) -> None:
        """End the connection of each node that cannot be used. `problem` returns the reason for which a node
        cannot be used; empty if it can.
        """
        for node, channel in list(self._by_node.items()):
            why = problem(node)
            if why:
                channel.cut(why)


class NodeFrames:
    """The agent side of the connections to the nodes of one engine: says hello for a node, carries out the
    orders of the controller, and sends logs.

    An order only changes the record of an attempt. AttemptRequests then makes the requests to the engine.
    """

    def __init__(
        self,
        name: str,
        caps: EngineCaps,
        now: Callable[[], float],
        breaker: EngineBreaker,
        nodes: ForeignNodes,
        attempts: AttemptTable,
        requests: AttemptRequests,
        logs: ForeignLogs,
        channels: NodeChannels,
        handled: Callable[[], None],
    ) -> None:
        """`handled` is called after each order of the controller."""
        self.complete = False
        """True after the first complete look. Before it, no node says hello, because an attempt that a hello
        does not name counts as lost.
        """
        self._name = name
        self._caps = caps
        self._now = now
        self._breaker = breaker
        self._nodes = nodes
        self._attempts = attempts
        self._requests = requests
        self._logs = logs
        self._channels = channels
        self._handled = handled
        self._readings: dict[tuple[str, int], asyncio.Task[None]] = {}
        """The tasks that send logs, by node and number of the request."""

    def problem(self, node: str) -> str:
        """Return the reason for which a node cannot be used now; empty if it can."""
        breaker = self._breaker
        if breaker.is_open:
            return f"engine {self._name} failed {breaker.failures} times in a row: {breaker.why}"
        if not self.complete:
            return f"engine {self._name} has not given a complete answer yet"
        return self._nodes.problem(node)

    def hello(self, node: str) -> Hello:
        """Return the hello of a node: its resources, and the statuses of its attempts, without settled
        attempts.
        """
        engine, facts = f"engine:{self._name}", self._nodes.facts(node)
        return Hello(node, VERSION, engine, engine, facts, self._attempts.statuses(node))

    def greet(self, channel: DelegateChannel) -> Hello:
        self._channels.add(channel)
        return self.hello(channel.node)

    def leave(self, channel: DelegateChannel) -> None:
        self._channels.remove(channel)
        for key in [key for key in self._readings if key[0] == channel.node]:
            self._readings.pop(key).cancel()

    async def close(self) -> None:
        """Stop sending logs."""
        readings = list(self._readings.values())
        for task in readings:
            task.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    def handle(self, channel: DelegateChannel, frame: ControllerFrame) -> None:
        match frame:
            case Start():
                self._start(channel, frame)
            case Go(job, attempt_number):
                for attempt in self._attempts.on_node(channel.node, job, attempt_number):
                    if not attempt.record.go:
                        attempt.record = replace(attempt.record, go=True)
                        self._attempts.save_soon(attempt)
            case Stop(job, attempt_number, grace_s, why):
                self._stop_or_deny(channel, job, attempt_number, why, grace_s)
            case TimeLimit(job, attempt_number, limit):
                for attempt in self._attempts.on_node(channel.node, job, attempt_number):
                    order = attempt.record.order
                    if order is not None:
                        attempt.record = replace(attempt.record, order=replace(order, time_limit_s=limit))
                        self._attempts.save_soon(attempt)
            case Settle(job, attempt_number):
                for attempt in self._attempts.on_node(channel.node, job, attempt_number):
                    if attempt.record.ended_at is not None and not attempt.record.settled:
                        attempt.record = replace(attempt.record, settled=True)
                        self._attempts.save_soon(attempt)
            case Ping(beat, heard):
                channel.send(Pong(beat, heard))
            case CheckGpu(uuid):
                channel.send(GpuChecked(uuid, True))
            case ResetGpu(uuid):
                channel.send(GpuReset(uuid, False, f"engine {self._name} cannot reset GPUs"))
            case OpenShell(request):
                why = f"engine {self._name} cannot run commands in jobs"
                channel.send(ShellEnded(request, error=why))
            case ReadLog(request, job, attempt_number):
                found = self._attempt(channel.node, job, attempt_number)
                self._read(channel, request, self._logs.read(frame, found, channel.send))
            case SearchLog(request, job, attempt_number):
                found = self._attempt(channel.node, job, attempt_number)
                self._read(channel, request, self._logs.search(frame, found, channel.send))
            case StopReading(request):
                reading = self._readings.pop((channel.node, request), None)
                if reading is not None:
                    reading.cancel()
            case _:
                return
        self._handled()

    def _start(self, channel: DelegateChannel, order: Start) -> None:
        """Record a new attempt. A repeated order starts nothing. Refuse the attempt if a later attempt of the
        job is known, or if the engine does not support a field of the order.
        """
        tag = self._attempts.tag_of(order)
        known = self._attempts.get(tag)
        if known is not None:
            self._report_if_news(channel, known)
            return
        newest = self._attempts.newest(order.job)
        # The record is not on disk yet. It is written before ask() is called. If it is lost before that, the
        # controller sends this order again after its restart.
        attempt = self._attempts.add(
            AttemptRecord(
                tag,
                channel.node,
                order.job,
                order.attempt,
                order,
                go=not order.barrier,
                grace_s=order.grace_s,
            )
        )
        refused = unsupported_requests(order, self._caps)
        if newest > order.attempt:
            self._requests.refuse(attempt, f"refused: attempt {newest} of the job is known")
        elif refused:
            why = f"launch_failed: engine {self._name} does not support {', '.join(refused)}"
            self._requests.refuse(attempt, why)
        elif not attempt.record.go:
            self._channels.report(attempt)

    def _report_if_news(self, channel: DelegateChannel, attempt: ForeignAttempt) -> None:
        record = attempt.record
        if record.started_at is not None or record.ended_at is not None or not record.go:
            channel.send(Report(record.status))

    def _stop_or_deny(
        self, channel: DelegateChannel, job: int, number: int, why: str, grace_s: float
    ) -> None:
        attempt = self._attempt(channel.node, job, number)
        if attempt is None:
            ended = AttemptStatus(job, number, ended_at=self._now(), why=why)
            channel.send(Report(ended))
        elif attempt.record.ended_at is not None:
            channel.send(Report(attempt.record.status))
        elif attempt.stop(why, grace_s, self._now()):
            self._attempts.save_soon(attempt)

    def _read(self, channel: DelegateChannel, request: int, work: Coroutine[Any, Any, None]) -> None:
        key = channel.node, request
        task = asyncio.get_running_loop().create_task(work)
        self._readings[key] = task
        task.add_done_callback(lambda _: self._readings.pop(key, None))

    def _attempt(self, node: str, job: int, number: int) -> ForeignAttempt | None:
        return next(iter(self._attempts.on_node(node, job, number)), None)
