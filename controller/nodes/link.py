"""The interface of a connection to an agent. It is the same for SSH and for a local process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wire.agent.frames import AgentFrame, ControllerFrame

if TYPE_CHECKING:
    from controller.nodes.session import AgentSession


@dataclass(frozen=True)
class LinkLost:
    """The connection to the agent is lost. The link connects again and again until it is closed."""

    why: str


FrameHandler = Callable[[str, AgentFrame | LinkLost], str]
"""The function that handles a frame; its first argument is the node's name. It runs on the event loop.

The first frame after a lost connection is a Hello. The function returns the reason why this agent cannot
be used, which ends the connection, or "" if it can be used.
"""


class NodeAway(Exception):
    """There is no connection to this node at present."""


class LogMissing(Exception):
    """The agent does not have the requested log. The message gives the reason."""


class NodeLink(Protocol):
    """The link to the agent of one node."""

    name: str

    def open(self, handler: FrameHandler) -> None:
        """Connect to the agent. Whenever the connection is lost, connect again after a pause."""

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame; never blocks. Without a connection the frame is dropped, because the controller
        compares its state with the agent's at the next Hello."""

    def session(self) -> AgentSession:
        """The session on the current connection, for logs and commands. Raises NodeAway if there is none."""

    async def close(self) -> None:
        """Disconnect from the agent. The attempts on the node continue."""
