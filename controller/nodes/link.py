"""The interface of a connection to an agent. SshLink (a host reached by SSH) and LocalLink (this machine)
implement it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wire.agent.frames import AgentFrame, ControllerFrame

if TYPE_CHECKING:
    from controller.nodes.session import AgentSession


@dataclass(frozen=True)
class LinkLost:
    """A lost connection to an agent, with the reason. The FrameHandler gets this object in place of a frame
    (message).
    """

    why: str


FrameHandler = Callable[[str, AgentFrame | LinkLost], str]
"""A function that handles a frame (message) of an agent, or a LinkLost. It runs on the event loop. Its first
argument is the node's name.

The first frame on each connection is a Hello. The function returns "" if the connection may be used, or the
reason why it must be closed.
"""


class NodeAway(Exception):
    """Raised if there is no connection to the node at present."""


class LogMissing(Exception):
    """Raised if the agent does not have the requested log. The message gives the reason."""


class NodeLink(Protocol):
    """The connection to the agent of one node. A lost connection is opened again."""

    name: str

    def open(self, handler: FrameHandler) -> None:
        """Connect to the agent. Whenever the connection is lost, connect again after a pause."""

    def send(self, frame: ControllerFrame) -> None:
        """Queue a frame (a message) for the agent; never blocks. Without a connection the frame is dropped.

        Dropping a frame is safe: after each connect the agent sends a Hello with all its attempts, and the
        controller sends the missing orders again.
        """

    def session(self) -> AgentSession:
        """Return the session on the present connection, with methods to read logs and to run commands. Raises
        NodeAway if the agent is not connected.
        """

    async def close(self) -> None:
        """Disconnect from the agent. The jobs on the node continue."""
