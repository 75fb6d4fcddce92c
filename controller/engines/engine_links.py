"""The connections to nodes of an execution engine: to the engine's driver, which answers the frames
(messages) of the controller as an agent does, or to an agent that the engine runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from controller.engines.contract import EngineUnavailable
from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.link import FrameHandler
from controller.nodes.reconnecting import CannotConnect, ReconnectingLink
from controller.nodes.session import AgentChannel
from wire.agent.frames import AgentFrame, ControllerFrame, pack, unpack
from wire.agent.reports import Hello


class FrameDriver(Protocol):
    """The part of an engine's driver that answers frames, as a DelegateLink uses it."""

    def problem(self, node: str) -> str:
        """Return the reason for which the node cannot be used now; empty if it can."""

    def greet(self, channel: DelegateChannel) -> Hello:
        """Register an open channel of a node, and return the hello of the node."""

    def handle(self, channel: DelegateChannel, frame: ControllerFrame) -> None:
        """Carry out an order of the controller."""

    def leave(self, channel: DelegateChannel) -> None:
        """Forget a channel that was closed."""


class DelegateLink(ReconnectingLink):
    """The connection to one node on which the engine itself runs the jobs.

    The session is the same class as for agents. A DelegateChannel in the controller's process connects the
    session with the engine's driver, so hellos, reports, logs and lost connections are handled as for agents.
    """

    longest_pause_s = 1.0  # because a try to connect only asks the driver, and costs nothing

    def __init__(self, name: str, driver: FrameDriver, ping_s: float, silence_s: float) -> None:
        super().__init__(name, ping_s, silence_s)
        self._driver = driver

    async def connect(self) -> AgentChannel:
        """Return a channel to the driver. Raise CannotConnect if the engine or the node cannot be used."""
        problem = self._driver.problem(self.name)
        if problem:
            raise CannotConnect(problem)
        return DelegateChannel(self.name, self._driver)

    def renew(self, hello: Hello) -> None:
        """Pass a further hello to the controller, because the resources of the node have changed."""
        handler: FrameHandler | None = self._handler
        if handler is not None and self._session is not None and self._session.greeted:
            handler(self.name, hello)


class PilotLink(ReconnectingLink):
    """The connection to Corral's agent on a pilot node: the engine runs the agent, and opens the channel."""

    def __init__(
        self,
        name: str,
        open_channel: Callable[[], Awaitable[AgentChannel]],
        ping_s: float,
        silence_s: float,
        leader: Leadership = ALONE,
    ) -> None:
        super().__init__(name, ping_s, silence_s, leader)
        self._open_channel = open_channel

    async def connect(self) -> AgentChannel:
        """Open a channel to the agent. Raise CannotConnect if the engine cannot open one."""
        try:
            return await self._open_channel()
        except EngineUnavailable as error:
            raise CannotConnect(str(error)) from None


class DelegateChannel:
    """A channel between a session and the driver of an engine. Frames to the session wait in a queue."""

    def __init__(self, node: str, driver: FrameDriver) -> None:
        self.node = node
        self._driver = driver
        self._why = ""
        self._unread = bytearray()
        self._news = asyncio.Event()
        self._closed = False
        self.send(driver.greet(self))

    def send(self, frame: AgentFrame) -> None:
        """Queue a frame (message) for the session."""
        self._unread += pack(frame)
        self._news.set()

    def cut(self, why: str) -> None:
        """End the connection, for this reason."""
        self._why, self._closed = why, True
        self._news.set()

    async def read(self) -> bytes:
        while not self._unread and not self._closed:
            self._news.clear()
            await self._news.wait()
        data, self._unread = bytes(self._unread), bytearray()
        return data

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._driver.handle(self, unpack(line))  # type: ignore[arg-type] # the session sends only orders

    def unread(self) -> int:
        return 0

    async def end(self, patience_s: float) -> str:
        self._closed = True
        self._driver.leave(self)
        return self._why
