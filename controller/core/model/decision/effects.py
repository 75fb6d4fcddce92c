"""Effects: messages to agents that result from an input. An effect is sent only after the events of its input
are on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

from controller.core.model.dataclass import dataclass
from controller.core.model.decision.start_orders import start_frames
from controller.core.model.job import Job, Member
from controller.core.model.time_limits import ShortLimit
from wire.agent.orders import CheckGpu, Go, Note, ResetGpu, Settle, Start, Stop, TimeLimit
from wire.agent.reports import Checkpoint
from wire.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class SendToNode:
    """Send a frame (message) to the agent of a node. If an order in a lost frame is still needed, it is given
    again when the agent reconnects.
    """

    node: str
    frame: Start | Go | Stop | Settle | CheckGpu | ResetGpu | Note | TimeLimit

    def orders(self) -> Iterator[SendToNode]:
        yield self


@dataclass(frozen=True, slots=True)
class SendToNodes:
    """Send the same frame (message) to the agents of several nodes."""

    nodes: tuple[str, ...]
    frame: Go | Stop | Settle

    def orders(self) -> Iterator[SendToNode]:
        return (SendToNode(node, self.frame) for node in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class StartAttempt:
    """Send the start order of an attempt to the agent of each of its nodes. The orders are made at the time
    of sending, some time after the placement. The job may have changed by then. Therefore `members`, `spec`,
    `attempt`, `checkpoint` and `short` keep the job's values at its placement.
    """

    job: Job
    members: dict[str, Member]
    spec: JobSpec
    attempt: int
    checkpoint: Checkpoint | None
    facts: Callable[[Job], tuple[dict[str, str], str]]
    """Returns the network address of each node of the job, by node name, and the QOS of the job."""
    short: ShortLimit | None = None

    @property
    def time_limit_s(self) -> float | None:
        """Return the time limit of the attempt; None for an attempt without a time limit."""
        return self.spec.time_limit_s if self.short is None else self.short.limit_s

    def orders(self) -> Iterator[SendToNode]:
        # Copy the job before the frames are made, because the job may be edited or placed again before the
        # frames are sent.
        job = copy(self.job)
        job.members, job.spec, job.attempt = self.members, self.spec, self.attempt
        job.checkpoint, job.short = self.checkpoint, self.short
        return (SendToNode(node, start) for node, start in start_frames(job, *self.facts(job)).items())


Effect = SendToNode | SendToNodes | StartAttempt
