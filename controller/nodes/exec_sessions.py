"""The controller's side of a command that a user runs in a job's allocation (`corral exec`)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable

from controller.nodes.link import NodeAway
from wire.agent.frames import ControllerFrame
from wire.agent.orders import CloseShell, OpenShell, ResizeShell, ShellInput, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput

UNREAD_S = 10.0
"""Seconds. A command is ended if no client begins to read its output within this time."""


class ExecSession:
    """One command of `corral exec`. The session ends at close(), or when the client has read the end of the
    command.
    """

    def __init__(self, order: OpenShell, send: Callable[[ControllerFrame], None]) -> None:
        self.order = order
        self._send = send
        self._messages: deque[ShellOutput | ShellEnded] = deque()
        self._news = asyncio.Event()
        self._lost = False
        self.closed = False
        self.read = False
        send(order)
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self.close)

    async def answers(self) -> AsyncIterator[ShellOutput | ShellEnded]:
        """Yield the output of the command and then its end. Closing the generator ends the command.

        Raise NodeAway if the connection to the agent is lost.
        """
        self.read = True
        self._unread.cancel()
        try:
            while True:
                while self._messages:
                    said = self._messages.popleft()
                    yield said
                    if isinstance(said, ShellEnded):
                        self.closed = True
                        return
                    self._send(
                        ShellTaken(self.order.request, len(said.data) // 4 * 3 - said.data[-2:].count("="))
                    )
                if self._lost:
                    raise NodeAway("the connection to the node was lost; the command has ended with it")
                self._news.clear()
                await self._news.wait()
        finally:
            self.close()

    def receive(self, message: ShellOutput | ShellEnded) -> None:
        """Add a message from the agent, which is output of the command or the command's end."""
        self._messages.append(message)
        self._news.set()

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Send bytes to the command's stdin. If `end` is True, close the stdin afterwards."""
        self._send(ShellInput(self.order.request, b64encode(data).decode(), end))

    def resize(self, rows: int, columns: int) -> None:
        """Send the new size of the terminal, in characters."""
        self._send(ResizeShell(self.order.request, rows, columns))

    def lose(self) -> None:
        """Make answers() raise NodeAway, because the connection to the agent is lost."""
        self._lost = True
        self._news.set()

    def close(self) -> None:
        """End the command if the command still runs."""
        self._unread.cancel()
        if not self.closed:
            self.closed = True
            self._send(CloseShell(self.order.request))
