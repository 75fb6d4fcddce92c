"""Orders to the outside, in the imperative: carried out only after their events are on disk."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.launch import Launch
from wire.frames import CheckGpu, Go, Note, ResetGpu, Settle, Start, Stop


@dataclass(frozen=True, slots=True)
class SendToNode:
    """Tell the agent of a node; lost while the link is down, made good by the next hello."""

    node: str
    frame: Start | Go | Stop | Settle | CheckGpu | ResetGpu | Note


@dataclass(frozen=True, slots=True)
class StartOnNode:
    """Tell the agent of a node to start its member; the order is only written when somebody sends it."""

    node: str
    launch: Launch

    @property
    def frame(self) -> Start:
        """The order."""
        return self.launch.starts[self.node]


Effect = SendToNode | StartOnNode
