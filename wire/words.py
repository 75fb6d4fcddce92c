"""One word per thing: states, reasons and classes as they appear everywhere."""

from __future__ import annotations

import enum
from typing import Final


class JobState(str, enum.Enum):
    """Where a job is in its life; the legal moves stand in controller.core.transitions."""

    QUEUED = "QUEUED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        """True once nothing can happen to the job any more."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class Reason(str, enum.Enum):
    """Why a job is where it is; short enough for a table column."""

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
    IDLE = "idle"


class NodeState(str, enum.Enum):
    """Whether a node is there, and whether it takes new work."""

    UP = "up"
    DRAINED = "drained"
    SUSPECT = "suspect"
    """Not heard of for a short while; what runs there is believed to run."""
    DOWN = "down"
    """Not heard of for long, or never."""

    @property
    def away(self) -> bool:
        """Is it not heard of?"""
        return self in (NodeState.SUSPECT, NodeState.DOWN)


class GpuHealth(str, enum.Enum):
    """Health of one GPU by itself; only OK takes new work."""

    OK = "ok"
    SUSPECT = "suspect"
    CORDONED = "cordoned"
    PROBING = "probing"
    LOST = "lost"


class TroubleKind(str, enum.Enum):
    """How an agent came to know that something is wrong with a GPU."""

    XID = "xid"
    LOST = "lost"
    SILENT = "silent"
    UNCLEAN = "unclean"


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
"""GPU-milli of one whole GPU."""


def priority_name(value: int) -> str:
    """The class whose number this is, or the bare number."""
    return next((name for name, number in PRIORITIES.items() if number == value), str(value))
