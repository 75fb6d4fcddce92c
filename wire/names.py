"""The names of states, reasons and priority classes in the API, the journal and all user interfaces."""

from __future__ import annotations

import enum
from typing import Final


class JobState(str, enum.Enum):
    """The state of a job. controller.core.model.job.LEGAL has the allowed transitions.

    Users never see PREEMPTED, because the commit that preempts a job also sets the state of the job to
    QUEUED. The reason of the job is `preempted` until the next scheduling cycle sets another reason.
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
        """Return whether the job has ended, so that its state cannot change any more."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
SHOWN_STATES: Final = tuple(state for state in JobState if state is not JobState.PREEMPTED)
"""The states that users see."""


class Reason(str, enum.Enum):
    """The reason for a job's state, in a few words that fit into a table column."""

    NONE = ""
    NEW = "new"
    HELD = "held"
    NO_NODES = "no_nodes"
    RESOURCES = "resources"
    QUOTA = "quota"
    SHARE = "share"
    HOURS = "hours"
    KEPT_FREE = "kept_free"
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
    WORKLOAD = "workload"
    """For a waiting job: the job waits for a run slot of its workload. For an ended job: the job was
    cancelled, because another job of its workload has failed.
    """
    PREEMPTED = "preempted"
    PREEMPTING = "preempting"
    GRACE = "grace"
    MOVING = "moving"
    EVICTED = "evicted"
    REQUEUED = "requeued"
    IDLE = "idle"
    SERVICE = "service"
    """The service has ended the job, because another replica replaces the job or because the service needs
    fewer replicas.
    """
    UNHEALTHY = "unhealthy"
    DRAINED = "drained"
    """A timed drain of a node has ended the job, because the job may not be preempted."""


class NodeState(str, enum.Enum):
    """The state of a node: whether the node is connected, and whether the node takes new jobs."""

    UP = "up"
    DRAINED = "drained"
    SUSPECT = "suspect"
    """The node has not reported for a short time. The controller assumes that its jobs still run."""
    DOWN = "down"
    """The node has not reported for a long time, or has never connected."""

    @property
    def away(self) -> bool:
        """Return whether the node does not report, i.e. is SUSPECT or DOWN."""
        return self in (NodeState.SUSPECT, NodeState.DOWN)


class GpuHealth(str, enum.Enum):
    """The health of one GPU. The GPU gets new jobs only while its health is OK."""

    OK = "ok"
    SUSPECT = "suspect"
    CORDONED = "cordoned"
    PROBING = "probing"
    LOST = "lost"


class TroubleKind(str, enum.Enum):
    """The kind of fault of a GPU."""

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
    """Memory of the GPU is in use although no process uses the GPU. The controller, and not the agent, finds
    this fault in the readings of the GPU.
    """


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
"""One whole GPU. Parts of GPUs are counted in thousandths."""

ENGINE_LABEL: Final = "engine"
"""The key of a node label and of a taint. The value of both is the execution engine of the node, such as
slurm.
"""
COST_LABEL: Final = "cost"
"""The key of the node label with the price per hour of a machine of a pool. The scorer `cost` reads this
label.
"""
SLURM_QOS: Final = "normal"
"""The QOS that Slurm's commands show for jobs of a queue without `qos` in scheduler.toml."""


def priority_name(value: int) -> str:
    """Return the name of the priority class with this number. If no class has the number, return the number
    as text.
    """
    return next((name for name, number in PRIORITIES.items() if number == value), str(value))
