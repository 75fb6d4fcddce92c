"""Orders to the outside, in the imperative: carried out only after their events are on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controller.core.launch import Launch
from wire.frames import CheckGpu, Go, Note, ResetGpu, Settle, Start, Stop


@dataclass(frozen=True, slots=True)
class SendToNode:
    """Tell the agent of a node; lost while the link is down, made good by the next hello."""

    node: str
    frame: Start | Go | Stop | Settle | CheckGpu | ResetGpu | Note

    def orders(self) -> Iterator[SendToNode]:
        """Node by node: itself."""
        yield self


@dataclass(frozen=True, slots=True)
class SendToNodes:
    """Tell the agents of several nodes the same."""

    nodes: tuple[str, ...]
    frame: Go | Stop | Settle

    def orders(self) -> Iterator[SendToNode]:
        """Node by node."""
        return (SendToNode(node, self.frame) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Tell the agents of all its nodes to start their members; only written when somebody sends it."""

    launch: Launch

    def orders(self) -> Iterator[SendToNode]:
        """Node by node."""
        return (SendToNode(node, start) for node, start in self.launch.starts.items())


Effect = SendToNode | SendToNodes | StartAttempt
