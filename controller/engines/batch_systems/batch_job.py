"""The jobs that Corral gives to a batch system, and the jobs and nodes that the batch system shows."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One job for a batch system. `tag` is the name of the job in the batch system, and is unique.

    - `cpus`, `memory_mib` and `gpus` are amounts per node. A job without `memory_mib` gets what the batch
      system gives by default.
    - `gres` is the name and the type of the GPUs, such as `gpu` or `gpu:a100`.
    - `node` is the node on which the job must run; empty leaves the choice to the batch system.
    - `directory` is the directory of the job's records. It must be visible on the compute nodes. A `~` at its
      beginning is the home directory of the user who runs the job.
    - `extra` has further options of the batch system, each without dashes, such as `licenses=matlab:1`.
    """

    tag: str
    command: tuple[str, ...]
    title: str = ""
    cpus: int = 1
    memory_mib: int = 0
    gpus: int = 0
    gres: str = "gpu"
    nodes: int = 1
    node: str = ""
    time_limit_s: float | None = None
    grace_s: float = 10.0
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    output: str = ""
    error: str = ""
    append: bool = False
    umask: int | None = None
    directory: str = "~/.corral/batch"
    extra: tuple[str, ...] = ()


class Phase(enum.Enum):
    """The phase of a job in a batch system. Slurm and PBS have the same phases."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    ENDING = "ending"
    """The program has ended or is being ended, and the batch system has not yet freed the resources."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The batch system gave a state that this module does not know. The job counts as alive."""

    @property
    def alive(self) -> bool:
        """Return whether the batch system may still run the job or hold resources for it."""
        return self is not Phase.ENDED


class Cause(enum.Enum):
    """Why a batch system ended a job. The values are the reasons of AttemptStatus, if it has one for the
    cause.
    """

    EXIT = ""
    """The program ended by itself, with an exit code or by a signal."""
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    NODE_FAILED = "node_lost"
    OUT_OF_MEMORY = "out_of_memory"
    LAUNCH_FAILED = "launch_failed"


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """One job as the batch system describes it. Times are seconds since 1970.

    `id` is the id of the job in commands of the batch system: `17`, and `17_3` or `17[3]` for an element of
    an array. `code` and `signal` are None while the job runs, and if the batch system does not show them.
    `user` is the account that submitted the job; empty if the list has the jobs of one account alone.
    """

    id: str
    tag: str
    phase: Phase
    state: str
    reason: str = ""
    node: str = ""
    partition: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    cause: Cause = Cause.EXIT
    code: int | None = None
    signal: int | None = None
    user: str = ""


@dataclass(frozen=True, slots=True)
class BatchNode:
    """A node of a batch system. `why` is empty if the node accepts jobs."""

    name: str
    cpus: int
    memory_mib: int
    gpus: int = 0
    gpu_model: str = ""
    cpus_used: int = 0
    why: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class Unreadable(ValueError):
    """Raised if the output of a batch system's command cannot be read. The message names the line."""
