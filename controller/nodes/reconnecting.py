"""A link that comes back: connect, talk, lose, wait a little longer, connect again."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from controller.nodes.conversation import Conversation, Line
from controller.nodes.link import Deliver, LinkLost, NodeAway
from controller.nodes.shells import Shell
from wire.frames import AgentFrame, ControllerFrame, OpenShell

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
STEADY_S = 10.0
"""A connection that lasted this long was a good one: the next pause is a short one again."""


class CannotConnect(Exception):
    """This attempt to connect failed; says in words why."""


class ReconnectingLink(ABC):
    """Everything of a NodeLink but the line itself."""

    def __init__(self, name: str, ping_s: float, silence_s: float) -> None:
        self.name = name
        self._ping_s = ping_s
        self._silence_s = silence_s
        self._talk: Conversation | None = None
        self._task: asyncio.Task[None] | None = None
        self._deliver: Deliver | None = None
        self._told: LinkLost | None = None
        self._closing = False

    @abstractmethod
    async def connect(self) -> Line:
        """Reach the agent; raises CannotConnect."""

    def open(self, deliver: Deliver) -> None:
        """Connect, and connect again with backoff whenever that is lost."""
        self._deliver = deliver
        self._closing = False
        self._told = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link to {self.name}")
        self._task.add_done_callback(_complain)

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame for the agent; dropped while not connected."""
        if self._talk is not None and self._talk.greeted:
            self._talk.send(frame)

    async def read_log(
        self, job: int, attempt: int, stream: str, offset: int, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """A log piece by piece."""
        if self._talk is None or not self._talk.greeted:
            raise NodeAway(f"node {self.name} is away")
        pieces = self._talk.read_log(job, attempt, stream, offset, follow)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    def open_shell(self, order: OpenShell) -> Shell:
        """A command in the allocation of an attempt."""
        if self._talk is None or not self._talk.greeted:
            raise NodeAway(f"node {self.name} is away")
        return self._talk.open_shell(order)

    async def close(self) -> None:
        """Let the agent go; its attempts go on."""
        self._closing = True
        if self._talk is not None:
            self._talk.leave()
        elif self._task is not None:
            self._task.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._closing:
            began = loop.time()
            self._tell(LinkLost(await self._connection()))
            if loop.time() - began > STEADY_S:
                pause = FIRST_PAUSE_S
            if not self._closing:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all come at once
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _connection(self) -> str:
        """One connection from beginning to end; returns why it ended."""
        try:
            line = await self.connect()
        except CannotConnect as error:
            return str(error)
        self._talk = Conversation(self.name, line, self._pass_on)
        try:
            why = await self._talk.run(self._ping_s, self._silence_s)
        finally:
            self._talk = None
            words = await line.end(patience_s=2.0 if self._closing else 0.5)
        return f"{why}: {words}" if words else why

    def _pass_on(self, frame: AgentFrame) -> str:
        wrong = self._deliver(self.name, frame) if self._deliver is not None else ""
        if not wrong:
            self._told = None
        return wrong

    def _tell(self, lost: LinkLost) -> None:
        """Once per loss, and again when the reason is another."""
        if self._deliver is not None and not self._closing and lost != self._told:
            self._told = lost
            self._deliver(self.name, lost)


def _complain(task: asyncio.Task[None]) -> None:
    """A link that dies of a bug must not die unheard."""
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"the {task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
