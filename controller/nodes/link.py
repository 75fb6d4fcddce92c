"""What the daemon knows of a way to an agent, whatever carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wire.frames import AgentFrame, ControllerFrame, OpenShell

if TYPE_CHECKING:
    from controller.nodes.shells import Shell


@dataclass(frozen=True)
class LinkLost:
    """The agent cannot be reached any more; it is tried again until the link is closed."""

    why: str


Deliver = Callable[[str, AgentFrame | LinkLost], str]
"""Called on the event loop with the node's name; after every loss the next frame is a Hello.

What it answers a Hello with is why this agent cannot be listened to; empty if it can.
"""


class NodeAway(Exception):
    """There is no connection to this node at the moment."""


class LogMissing(Exception):
    """The agent has no such log; says in words why."""


class NodeLink(Protocol):
    """The way to one agent."""

    name: str

    def open(self, deliver: Deliver) -> None:
        """Connect, and connect again with backoff whenever that is lost."""

    def send(self, frame: ControllerFrame) -> None:
        """Never blocks; dropped while not connected, for the Hello that follows reconciles."""

    def read_log(
        self, job: int, attempt: int, stream: str, offset: int, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """A log piece by piece; raises NodeAway or LogMissing. Close it to stop reading."""

    def open_shell(self, order: OpenShell) -> Shell:
        """Run a command in the allocation of an attempt; raises NodeAway."""

    async def close(self) -> None:
        """Let the agent go; its attempts go on."""
