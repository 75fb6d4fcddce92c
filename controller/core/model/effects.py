"""Effects: orders to agents. An effect is carried out only when the events of the same input are on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controller.core.model.start_orders import AttemptStart
from wire.agent.frames import CheckGpu, Go, Note, ResetGpu, Settle, Start, Stop


@dataclass(frozen=True, slots=True)
class SendToNode:
    """Send a frame (message) to the agent of a node. A lost frame is sent again when the agent reconnects."""

    node: str
    frame: Start | Go | Stop | Settle | CheckGpu | ResetGpu | Note

    def orders(self) -> Iterator[SendToNode]:
        yield self


@dataclass(frozen=True, slots=True)
class SendToNodes:
    """Send the same frame (message) to the agents of several nodes."""

    nodes: tuple[str, ...]
    frame: Go | Stop | Settle

    def orders(self) -> Iterator[SendToNode]:
        return (SendToNode(node, self.frame) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Send the start orders of an attempt to the agents of its nodes. The frames (messages) are made only
    when they are sent.
    """

    launch: AttemptStart

    def orders(self) -> Iterator[SendToNode]:
        return (SendToNode(node, start) for node, start in self.launch.starts.items())


Effect = SendToNode | SendToNodes | StartAttempt
