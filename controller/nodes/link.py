"""The interface of a link to an agent, whatever carries it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wire.agent.frames import AgentFrame, ControllerFrame

if TYPE_CHECKING:
    from controller.nodes.session import AgentSession


@dataclass(frozen=True)
class LinkLost:
    """The connection to the agent is lost. The link tries again until it is closed."""

    why: str


FrameHandler = Callable[[str, AgentFrame | LinkLost], str]
"""Called on the event loop with the node's name and a frame. The first frame after a loss is a Hello.

Returns why this agent cannot be used, which ends the connection, or "" if it can.
"""


class NodeAway(Exception):
    """There is no connection to this node now."""


class LogMissing(Exception):
    """The agent has no such log. The message says why."""


class NodeLink(Protocol):
    """The link to the agent of one node."""

    name: str

    def open(self, handler: FrameHandler) -> None:
        """Connect, and connect again with backoff whenever the connection is lost."""

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame; never blocks. Dropped without a connection, because the next Hello reconciles."""

    def session(self) -> AgentSession:
        """The session on the present connection, to read logs and run commands; raises NodeAway."""

    async def close(self) -> None:
        """Disconnect the agent. Its attempts go on."""
