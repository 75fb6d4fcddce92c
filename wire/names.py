"""States, reasons and priority classes, as they appear everywhere."""

from __future__ import annotations

import enum
from typing import Final


class JobState(str, enum.Enum):
    """State of a job. controller.core.model.state_machine has the allowed transitions.

    PREEMPTED is left within the same commit and never shown: a preempted job is QUEUED again, with the reason
    `preempted` until the next cycle sets another reason.
    """

    QUEUED = "QUEUED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """True if the job has ended and its state cannot change."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
SHOWN_STATES: Final = tuple(state for state in JobState if state is not JobState.PREEMPTED)
"""The states that users see."""


class Reason(str, enum.Enum):
    """Why a job has its state; short enough for a table column."""

    NONE = ""
    NEW = "new"
    HELD = "held"
    NO_NODES = "no_nodes"
    RESOURCES = "resources"
    QUOTA = "quota"
    SHARE = "share"
    LICENCE = "licence"
    RESERVATION = "reservation"
    PROMISED = "promised"
    PRIORITY = "priority"
    OTHERS_DEADLINE = "others_deadline"
    STARTING = "starting"
    CANCELLING = "cancelling"
    USER = "user"
    EXIT_NONZERO = "exit_nonzero"
    SIGNAL = "signal"
    TIME_LIMIT = "time_limit"
    LAUNCH_FAILED = "launch_failed"
    NODE_LOST = "node_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    OUT_OF_MEMORY = "out_of_memory"
    SCRATCH_EXCEEDED = "scratch_exceeded"
    MEMBER_FAILED = "member_failed"
    GPU_FAILED = "gpu_failed"
    GPU_ERROR = "gpu_error"
    GPU_HELD = "gpu_held"
    NODE_UNFIT = "node_unfit"
    BEGIN = "begin"
    BACKOFF = "backoff"
    DEADLINE = "deadline"
    START_TIMEOUT = "start_timeout"
    DEPENDENCY = "dependency"
    ARRAY = "array"
    PREEMPTED = "preempted"
    PREEMPTING = "preempting"
    GRACE = "grace"
    MOVING = "moving"
    EVICTED = "evicted"
    REQUEUED = "requeued"
    IDLE = "idle"


class NodeState(str, enum.Enum):
    """Whether a node is connected, and whether it takes new jobs."""

    UP = "up"
    DRAINED = "drained"
    SUSPECT = "suspect"
    """Silent for a short time; its jobs are assumed to run."""
    DOWN = "down"
    """Silent for a long time, or never connected."""

    @property
    def away(self) -> bool:
        """True if the node is silent: SUSPECT or DOWN."""
        return self in (NodeState.SUSPECT, NodeState.DOWN)


class GpuHealth(str, enum.Enum):
    """Health of one GPU; only OK takes new jobs."""

    OK = "ok"
    SUSPECT = "suspect"
    CORDONED = "cordoned"
    PROBING = "probing"
    LOST = "lost"


class TroubleKind(str, enum.Enum):
    """How an agent found that a GPU is faulty."""

    XID = "xid"
    LOST = "lost"
    SILENT = "silent"
    UNCLEAN = "unclean"
    """A process that no job started uses the GPU, or its memory was not freed."""
    ECC_UNCORRECTED = "ecc_uncorrected"
    ECC_CORRECTED = "ecc_corrected"
    ROW_REMAP = "row_remap"
    NVLINK = "nvlink"
    SLOWDOWN = "slowdown"
    MEMORY = "memory"
    """This kind and the next, up to ECC_UNCORRECTED, are found by the controller in readings of the GPU."""


PRIORITIES: Final[dict[str, int]] = {
    "CRITICAL": 100,
    "HIGH": 75,
    "NORMAL": 50,
    "LOW": 25,
    "BATCH": 10,
    "SCAVENGER": 0,
}

HIGHEST_PRIORITY: Final = 100

WHOLE_GPU: Final = 1000
"""Thousandths in one whole GPU."""


def priority_name(value: int) -> str:
    """The priority class with this number, or the number as text."""
    return next((name for name, number in PRIORITIES.items() if number == value), str(value))
