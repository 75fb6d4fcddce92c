"""The exchange of frames (messages) with an agent on one connection: reports, orders, logs, commands in jobs
and pings.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from typing import Protocol

from controller.nodes.exec_sessions import ExecSession
from controller.nodes.link import FrameHandler, LogMissing, NodeAway
from controller.nodes.reported_hardware import invalid_facts
from controller.nodes.step_relay import RelayedTask, TaskAnswer
from wire.agent.frames import MAX_FRAME, ControllerFrame, pack, unpack
from wire.agent.orders import (
    CloseShell,
    Leave,
    OpenShell,
    Ping,
    ReadLog,
    SearchLog,
    ShellInput,
    ShellSignal,
    ShellTaken,
    StopReading,
)
from wire.agent.reports import (
    PROTOCOL,
    GpuChecked,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuTrouble,
    HealthReport,
    Hello,
    LogChunk,
    LogFound,
    Pong,
    Report,
    ShellEnded,
    ShellOutput,
)
from wire.agent.steps import InputTaken, OpenTask, RunTask, StepCall, StepNumber, StepsReport
from wire.codec import Malformed
from wire.text import printable

MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""The most bytes that an agent may leave unread before it is disconnected. After the next connect, the
controller learns from the agent's Hello which orders are missing.
"""
HELLO_S = 60.0
"""Seconds until the Hello must arrive. A new agent may first load thousands of attempts or wait for a slow
GPU driver."""
_REPORTS = (
    *(Report, GpuReport, GpuProcesses, GpuTrouble, GpuChecked, GpuReset, HealthReport),
    *(StepsReport, StepNumber, StepCall, OpenTask, RunTask, ShellInput, ShellTaken, ShellSignal, CloseShell),
)
SEARCH_S = 30.0
"""Seconds for the answer to a search of a log. Agents of earlier versions do not answer at all."""
MAX_LOG_CHUNKS = 16
"""If a slow reader leaves this many chunks of a log unread, the agent is told to stop sending the log."""


class AgentChannel(Protocol):
    """The connection that a session uses: the pipes of a local process, or an SSH channel."""

    async def read(self) -> bytes:
        """Read bytes from the agent. The result is empty when the agent has ended."""

    def write(self, data: bytes) -> None:
        """Queue bytes for the agent; never blocks."""

    def unread(self) -> int:
        """Return the number of queued bytes that the agent has not read."""

    async def end(self, patience_s: float) -> str:
        """Close the channel and return the agent's last stderr line. If the agent still runs after
        `patience_s` seconds, kill the agent.
        """


class AgentSession:
    """All frames (messages) that controller and agent exchange over one channel.

    1. The first frame of the agent must be a Hello with this node's name, this protocol version and valid
       hardware. The handler may still refuse the agent. Before the Hello, no frame is sent to the agent.
    2. Pass reports to the handler, chunks of logs to their readers, and output of commands to their
       ExecSession.
    3. Send a ping every `ping_s` seconds. If an agent sends nothing for `silence_s` seconds, the connection
       is lost.
    """

    def __init__(
        self, name: str, channel: AgentChannel, handler: FrameHandler, journal_head: Callable[[], str] = str
    ) -> None:
        self.name = name
        self._journal_head = journal_head
        self.greeted = False
        self._channel = channel
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._last_read = self._loop.time()
        self._outgoing: list[bytes] = []
        self._cut: asyncio.Future[str] = self._loop.create_future()
        self._logs: dict[int, _LogChunks] = {}
        self._searches: dict[int, asyncio.Future[LogFound]] = {}
        self._commands: dict[int, ExecSession | RelayedTask] = {}
        self._requests = 0
        self._clock: float | None = None

    async def run(self, ping_s: float, silence_s: float) -> str:
        """Exchange frames (messages) with the agent until the connection is lost. Return the reason of the
        loss."""
        tasks = [
            self._loop.create_task(self._listen()),
            self._loop.create_task(self._watch(ping_s, silence_s)),
        ]
        try:
            await asyncio.wait([*tasks, self._cut], return_when=asyncio.FIRST_COMPLETED)
            done = next(each for each in (self._cut, *tasks) if each.done())
            return done.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._cut.cancel()
            for log in self._logs.values():
                log.lose()
            for search in self._searches.values():
                if not search.done():
                    search.set_exception(NodeAway("the connection was lost while the log was searched"))
            for command in self._commands.values():
                command.lose()

    @property
    def unread_bytes(self) -> int:
        """The number of bytes that were sent to the agent but that the agent has not read."""
        return self._channel.unread() + sum(map(len, self._outgoing))

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame (message) for the agent. All frames queued in one iteration of the event loop are
        sent with one write."""
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.append(pack(frame))

    def flush(self) -> None:
        """Write the queued frames (messages) to the channel. End the session if the agent has left too many
        bytes unread."""
        data, self._outgoing = b"".join(self._outgoing), []
        if self._cut.done():
            return
        self._channel.write(data)
        if self._channel.unread() > MAX_UNREAD_BYTES:
            self._cut.set_result("the agent does not read its orders")

    def leave(self) -> None:
        """Order the agent to exit while its attempts continue (Leave), and end the session."""
        self.send(Leave())
        self.flush()
        if not self._cut.done():
            self._cut.set_result("closed")

    async def read_log(
        self, job: int, attempt: int, stream: str, offset: int, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a log from byte `offset` on. Raise NodeAway if the agent is not connected, or
        LogMissing if the agent does not have the log.

        If the caller closes the generator, the agent stops sending. If the caller reads too slowly, the agent
        is told to pause. The rest of the log is requested when the caller has read all bytes that have
        arrived.
        """
        while True:
            self._requests += 1
            request = ReadLog(self._requests, job, attempt, stream, offset, follow)
            reading = self._logs[request.request] = _LogChunks()
            self.send(request)
            try:
                async for begin, data in reading.chunks():
                    offset = begin + len(data)
                    yield data
                if reading.ended:
                    return
            finally:
                del self._logs[request.request]
                if not (reading.ended or reading.stopped):
                    self.send(StopReading(request.request))

    async def search_log(self, order: SearchLog) -> LogFound:
        """Search a log for a text, and return the answer of the agent. Raise NodeAway if the agent is not
        connected, or LogMissing if the agent does not have the log or does not answer.

        If the caller is cancelled, the agent is told to end the search.
        """
        self._requests += 1
        number = self._requests
        answer = self._searches[number] = self._loop.create_future()
        self.send(replace(order, request=number))
        try:
            async with asyncio.timeout(SEARCH_S):
                found: LogFound = await answer
        except TimeoutError:
            raise LogMissing(f"the agent on node {self.name} does not answer the search") from None
        finally:
            del self._searches[number]
            if not answer.done() or answer.cancelled():
                self.send(StopReading(number))
        if found.error:
            raise LogMissing(found.error)
        return found

    def open_shell(self, order: OpenShell) -> ExecSession:
        """Start a command in the allocation of an attempt (`corral exec`), and return the session that
        transfers its input and output.
        """
        for number in [number for number, command in self._commands.items() if command.closed]:
            del self._commands[number]
        self._requests += 1
        command = ExecSession(replace(order, request=self._requests), self.send)
        self._commands[self._requests] = command
        return command

    def relay(self, order: OpenShell, answer: Callable[[TaskAnswer], None]) -> RelayedTask:
        """Start a task of srun. `answer` is called with the output and the end of the task."""
        for number in [number for number, command in self._commands.items() if command.closed]:
            del self._commands[number]
        self._requests += 1
        task = RelayedTask(replace(order, request=self._requests), answer)
        self._commands[self._requests] = task
        self.send(task.order)
        return task

    async def _listen(self) -> str:
        buffer = bytearray()
        while data := await self._channel.read():
            self._last_read = self._loop.time()
            buffer += data
            if b"\n" not in data:
                if len(buffer) > MAX_FRAME:
                    return f"a frame is longer than {MAX_FRAME} bytes"
                continue
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                complaint = self._take(bytes(line))
                if complaint:
                    return complaint
        return "the agent ended"

    def _take(self, line: bytes) -> str:
        """Handle one frame (a line of text) of the agent. Return the reason if the session must end because
        of this frame, "" if it continues.
        """
        try:
            frame = unpack(line)
        except Malformed as error:
            return f"it sent something that is not a frame: {printable(str(error))}"
        if not self.greeted:
            return self._greet(frame)
        if isinstance(frame, LogChunk):
            self._take_chunk(frame)
        elif isinstance(frame, LogFound):
            search = self._searches.get(frame.request)
            if search is not None and not search.done():
                search.set_result(frame)
        elif isinstance(frame, (ShellOutput, ShellEnded)):
            if frame.request in self._commands:
                self._commands[frame.request].receive(frame)
        elif isinstance(frame, InputTaken):
            command = self._commands.get(frame.request)
            if isinstance(command, RelayedTask):
                command.receive(frame)
        elif isinstance(frame, Pong):
            self._clock = frame.clock
        elif isinstance(frame, _REPORTS):
            self._handler(self.name, frame)
        return ""

    def _greet(self, frame: object) -> str:
        if not isinstance(frame, Hello):
            return f"its first frame is not a hello but a {type(frame).__name__}"
        if frame.protocol != PROTOCOL:
            return f"its protocol version is {frame.protocol}, the controller's is {PROTOCOL}"
        if frame.node != self.name:
            return f"its hello names the node {printable(frame.node)!r}"
        problem = invalid_facts(frame.facts)
        if problem:
            return printable(problem)
        self.greeted = True
        self._clock = frame.clock
        if frame.clock is not None:
            # Send a ping before any order. The ping starts the lease: the time that attempts may run without
            # a message from the controller.
            self.send(Ping(0, frame.clock))
        problem = self._handler(self.name, frame)
        self.greeted = not problem
        return problem

    def _take_chunk(self, chunk: LogChunk) -> None:
        reading = self._logs.get(chunk.request)
        if reading is not None and reading.take(chunk):
            self.send(StopReading(chunk.request))

    async def _watch(self, ping_s: float, silence_s: float) -> str:
        beat = 0
        while True:
            await asyncio.sleep(ping_s)
            silent = self._loop.time() - self._last_read
            if silent > (silence_s if self.greeted else max(silence_s, HELLO_S)):
                return f"the agent has not answered for more than {silent:.0f} s"
            if self.greeted:
                beat += 1
                self.send(Ping(beat, self._clock, self._journal_head()))


class _LogChunks:
    """The chunks of a log that have arrived for one ReadLog request."""

    def __init__(self) -> None:
        self.ended = False
        self.stopped = False
        self._error: Exception | None = None
        self._chunks: deque[LogChunk] = deque()
        self._news = asyncio.Event()

    def take(self, chunk: LogChunk) -> bool:
        """Add a chunk that has arrived. Return True if so many chunks are unread that the agent must stop
        sending."""
        if self.stopped or self.ended:
            return False
        if chunk.error:
            self._error = LogMissing(chunk.error)
        if chunk.data:
            self._chunks.append(chunk)
        self.ended = chunk.end
        self.stopped = not self.ended and len(self._chunks) >= MAX_LOG_CHUNKS
        self._news.set()
        return self.stopped

    def lose(self) -> None:
        """Make chunks() raise NodeAway, because the connection to the agent is lost."""
        if not self.ended:
            self.ended = True
            self._error = NodeAway("the connection was lost while the log was read")
            self._news.set()

    async def chunks(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the chunks of the log with their offsets, until the log ends or the agent was told to stop
        sending."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                yield chunk.offset, b64decode(chunk.data)
            if self._error is not None:
                raise self._error
            if self.ended or self.stopped:
                return
            self._news.clear()
            await self._news.wait()
