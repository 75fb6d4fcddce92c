"""One connection to an agent, from its Hello to its loss: frames, logs, and the watch over silence."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from typing import Protocol

from controller.nodes.link import LogMissing, NodeAway
from controller.nodes.plausible import implausible
from controller.nodes.shells import Shell
from wire.codec import Malformed
from wire.frames import (
    MAX_FRAME,
    PROTOCOL,
    AgentFrame,
    ControllerFrame,
    GpuChecked,
    GpuProcesses,
    GpuReport,
    GpuReset,
    GpuTrouble,
    Hello,
    Leave,
    LogChunk,
    OpenShell,
    Ping,
    Pong,
    ReadLog,
    Report,
    ShellEnded,
    ShellOutput,
    StopReading,
    pack,
    unpack,
)
from wire.text import plain

MAX_UNREAD = 64 * 1024 * 1024
"""An agent that leaves more than this unread is stuck; what it missed comes right with its next Hello."""
HELLO_S = 60.0
"""An agent that adopts thousands of attempts, or asks a slow driver for its GPUs, says nothing at first."""
_TOLD = (Report, GpuReport, GpuProcesses, GpuTrouble, GpuChecked, GpuReset)
WINDOW = 16
"""Log chunks kept for a slow reader; beyond them the agent is told to stop, and asked again later."""


class Line(Protocol):
    """What carries a conversation: a subprocess's pipes, an SSH channel."""

    async def read(self) -> bytes:
        """What came in; empty when the other end is gone."""

    def write(self, data: bytes) -> None:
        """Queue bytes; never blocks."""

    def unread(self) -> int:
        """Bytes queued that the other end has not taken."""

    async def end(self, patience_s: float) -> str:
        """Close, give the other end this long to leave, then make it; returns its last words."""


class Conversation:
    """Everything said over one line."""

    def __init__(self, name: str, line: Line, deliver: Callable[[AgentFrame], str]) -> None:
        self.name = name
        self.greeted = False
        self._line = line
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._outgoing: list[bytes] = []
        self._cut: asyncio.Future[str] = self._loop.create_future()
        self._readings: dict[int, _Reading] = {}
        self._shells: dict[int, Shell] = {}
        self._requests = 0
        self._clock: float | None = None

    async def run(self, ping_s: float, silence_s: float) -> str:
        """Listen until the connection is lost; returns why."""
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
            for reading in self._readings.values():
                reading.lose()
            for shell in self._shells.values():
                shell.lose()

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame; all frames of one turn of the event loop leave in one write."""
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self._outgoing.append(pack(frame))

    def flush(self) -> None:
        """Hand over what is queued."""
        data, self._outgoing = b"".join(self._outgoing), []
        if self._cut.done():
            return
        self._line.write(data)
        if self._line.unread() > MAX_UNREAD:
            self._cut.set_result("the agent does not read what it is told")

    def leave(self) -> None:
        """Say goodbye and listen no more."""
        self.send(Leave())
        self.flush()
        if not self._cut.done():
            self._cut.set_result("closed")

    async def read_log(
        self, job: int, attempt: int, stream: str, offset: int, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """A log piece by piece, asked for anew whenever its reader fell behind and caught up."""
        while True:
            self._requests += 1
            request = ReadLog(self._requests, job, attempt, stream, offset, follow)
            reading = self._readings[request.request] = _Reading()
            self.send(request)
            try:
                async for begin, data in reading.chunks():
                    offset = begin + len(data)
                    yield data
                if reading.ended:
                    return
            finally:
                del self._readings[request.request]
                if not (reading.ended or reading.stopped):
                    self.send(StopReading(request.request))

    def open_shell(self, order: OpenShell) -> Shell:
        """A command in the allocation of an attempt."""
        for ended in [number for number, shell in self._shells.items() if shell.closed]:
            del self._shells[ended]
        self._requests += 1
        shell = self._shells[self._requests] = Shell(replace(order, request=self._requests), self.send)
        return shell

    async def _listen(self) -> str:
        buffer = bytearray()
        while data := await self._line.read():
            self._heard = self._loop.time()
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
        """Handle one line; returns what makes it impossible to go on."""
        try:
            frame = unpack(line)
        except Malformed as error:
            return f"what it says is not a frame: {plain(str(error))}"
        if not self.greeted:
            return self._greet(frame)
        if isinstance(frame, LogChunk):
            self._take_chunk(frame)
        elif isinstance(frame, (ShellOutput, ShellEnded)):
            if frame.request in self._shells:
                self._shells[frame.request].hear(frame)
        elif isinstance(frame, Pong):
            self._clock = frame.clock
        elif isinstance(frame, _TOLD):
            self._deliver(frame)
        return ""

    def _greet(self, frame: object) -> str:
        if not isinstance(frame, Hello):
            return f"its first frame is not a hello but a {type(frame).__name__}"
        if frame.protocol != PROTOCOL:
            return f"it speaks protocol {frame.protocol}, this controller speaks {PROTOCOL}"
        if frame.node != self.name:
            return f"it says it is {plain(frame.node)!r}"
        wrong = implausible(frame.facts)
        if wrong:
            return plain(wrong)
        self.greeted = True
        self._clock = frame.clock
        if frame.clock is not None:
            self.send(Ping(0, frame.clock))  # before any order: what is started needs a lease that holds
        wrong = self._deliver(frame)
        self.greeted = not wrong
        return wrong

    def _take_chunk(self, chunk: LogChunk) -> None:
        reading = self._readings.get(chunk.request)
        if reading is not None and reading.take(chunk):
            self.send(StopReading(chunk.request))

    async def _watch(self, ping_s: float, silence_s: float) -> str:
        beat = 0
        while True:
            await asyncio.sleep(ping_s)
            silent = self._loop.time() - self._heard
            if silent > (silence_s if self.greeted else max(silence_s, HELLO_S)):
                return f"the agent has been silent for {silent:.0f} s"
            if self.greeted:
                beat += 1
                self.send(Ping(beat, self._clock))


class _Reading:
    """The answer to one ReadLog as it comes in."""

    def __init__(self) -> None:
        self.ended = False
        self.stopped = False
        self._error: Exception | None = None
        self._chunks: deque[LogChunk] = deque()
        self._news = asyncio.Event()

    def take(self, chunk: LogChunk) -> bool:
        """Keep a chunk; True once the agent must be told to stop."""
        if self.stopped or self.ended:
            return False
        if chunk.error:
            self._error = LogMissing(chunk.error)
        if chunk.data:
            self._chunks.append(chunk)
        self.ended = chunk.end
        self.stopped = not self.ended and len(self._chunks) >= WINDOW
        self._news.set()
        return self.stopped

    def lose(self) -> None:
        """The connection is gone."""
        if not self.ended:
            self.ended = True
            self._error = NodeAway("the connection was lost while the log was read")
            self._news.set()

    async def chunks(self) -> AsyncIterator[tuple[int, bytes]]:
        """Pieces with their places in the log, until its end, an error, or a stop."""
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
