"""The base class of connections to agents, by SSH and on this machine. A lost connection is opened again."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from controller.nodes.leader_epoch import ALONE, Leadership
from controller.nodes.link import FrameHandler, LinkLost, NodeAway
from controller.nodes.session import AgentChannel, AgentSession
from wire.agent.frames import ControllerFrame

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
STEADY_S = 10.0
"""Seconds. After a connection that lasted longer than this, the pause before the next connection is
FIRST_PAUSE_S again.
"""


class CannotConnect(Exception):
    """Raised if a try to connect has failed. The message gives the reason."""


class ReconnectingLink(ABC):
    """Base class of connections to agents. Subclasses define how a connection is opened (`connect`).

    1. Open a channel (`connect`), and run a session on this channel until the connection is lost.
    2. Pass the lost connection to the handler (`LinkLost`). If several tries to connect in a row fail with
       the same reason, pass only the first failure, so that a switched-off host is reported once.
    3. Pause, and start again with 1. The pause doubles from FIRST_PAUSE_S to `longest_pause_s`.
    """

    longest_pause_s = LONGEST_PAUSE_S
    """The longest pause between two tries to connect, in seconds."""

    def __init__(self, name: str, ping_s: float, silence_s: float, leader: Leadership = ALONE) -> None:
        self.name = name
        self.leader = leader
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._session: AgentSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._handler: FrameHandler | None = None
        self._reported: LinkLost | None = None
        self._closing = False

    @abstractmethod
    async def connect(self) -> AgentChannel:
        """Open a channel to the agent. Raise CannotConnect if this fails."""

    def open(self, handler: FrameHandler) -> None:
        self._handler = handler
        self._closing = False
        self._reported = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link to {self.name}")
        self._task.add_done_callback(_report_crash)

    def send(self, frame: ControllerFrame) -> None:
        if self._session is not None and self._session.greeted:
            self._session.send(frame)

    def session(self) -> AgentSession:
        if self._session is None or not self._session.greeted:
            raise NodeAway(f"node {self.name} is away")
        return self._session

    async def close(self) -> None:
        self._closing = True
        if self._session is not None:
            self._session.leave()
        elif self._task is not None:
            self._task.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._closing:
            began = loop.time()
            self._report(LinkLost(await self._connect_once()))
            if loop.time() - began > STEADY_S:
                pause = FIRST_PAUSE_S
            if not self._closing:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads the reconnects of many nodes
            pause = min(pause * 2, self.longest_pause_s)

    async def _connect_once(self) -> str:
        """Connect once and wait until the connection ends. Return the reason why it ended, or why it could
        not be opened.
        """
        try:
            channel = await self.connect()
        except CannotConnect as error:
            return str(error)
        assert self._handler is not None
        self._session = session = AgentSession(self.name, channel, self._handler, self.leader.journal_head)
        try:
            why = await session.run(self._ping_s, self._silence_s)
        finally:
            # The agent was connected, so report this lost connection even if the last report had the same
            # reason.
            if session.greeted:
                self._reported = None
            self._session = None
            words = await channel.end(patience_s=2.0 if self._closing else 0.5)
        return f"{why}: {words}" if words else why

    def _report(self, lost: LinkLost) -> None:
        if self._handler is not None and not self._closing and lost != self._reported:
            self._reported = lost
            self._handler(self.name, lost)


def _report_crash(task: asyncio.Task[None]) -> None:
    """Log the exception, if any, with which the task of a connection ended. The task is not awaited, so its
    exception would not be seen without this log.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"the {task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
