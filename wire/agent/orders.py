"""The messages of the controller to agents: orders about attempts, logs, GPUs and commands in jobs."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import Mapping, Optional

from wire.agent.reports import Checkpoint
from wire.dataclass import dataclass
from wire.job.health import HealthCheck


@dataclass(frozen=True)
class GpuHold:
    """A GPU, or a part of a GPU, that is allocated to an attempt. `milli` is the part in thousandths of a
    GPU.
    """

    uuid: str
    milli: int


@dataclass(frozen=True)
class Start:
    """Run an attempt. A repeated Start has no effect. If the agent has received a higher attempt number of
    the same job before, the agent refuses the Start.

    `checkpoint` was saved by an earlier attempt of the job. The fields after `checkpoint` have the same
    meaning as in JobSpec, except for the following fields. `tasks` is the number of processes on this node.
    `rank` is the index of this node, from 0, among the `nodes` of the job. With `barrier` the agent prepares
    the attempt, reports that the attempt is ready, and waits for the message Go. `output` and `error` are
    paths without patterns. With `append`, output is added to existing files.
    """

    job: int
    attempt: int
    command: tuple[str, ...]
    user: str
    cpu_milli: int
    memory_mib: int
    name: str = ""
    gpus: tuple[GpuHold, ...] = ()
    numa: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Optional[str] = None
    time_limit_s: Optional[float] = None
    grace_s: float = 10.0
    lease_s: Optional[float] = None
    checkpoint: Optional[Checkpoint] = None
    checkpoint_command: tuple[str, ...] = ()
    checkpoint_signal: str = ""
    checkpoint_dir: Optional[str] = None
    checkpoint_keep: int = 0
    warn_signal: str = ""
    warn_s: float = 0.0
    tasks: int = 1
    rank: int = 0
    nodes: int = 1
    barrier: bool = False
    cpu_limit_milli: Optional[int] = None
    memory_limit_mib: Optional[int] = None
    best_effort: bool = False
    image: str = ""
    mounts: tuple[str, ...] = ()
    scratch_mib: int = 0
    umask: Optional[int] = None
    output: str = ""
    error: str = ""
    append: bool = False
    merge_output: bool = False
    health: Optional[HealthCheck] = None
    checkpoint_every_s: float = 0.0
    checkpoint_mib: int = 0

    @property
    def most_cpu_milli(self) -> Optional[int]:
        """Return the limit on the CPU usage of the attempt, in thousandths of a core; None means no limit."""
        return None if self.best_effort else self.cpu_limit_milli or self.cpu_milli

    @property
    def most_memory_mib(self) -> Optional[int]:
        """Return the limit on the memory of the attempt, in MiB; None means no limit."""
        return None if self.best_effort else self.memory_limit_mib or self.memory_mib


@dataclass(frozen=True)
class Go:
    """Start the program of the attempt, because all members of its gang are ready. A repeated Go has no
    effect.
    """

    job: int
    attempt: int


@dataclass(frozen=True)
class Stop:
    """End an attempt: request a checkpoint, send SIGTERM, wait `grace_s` seconds, send SIGKILL.

    `checkpoint_s` is how many seconds the checkpoint may take; 0 means no checkpoint. If the agent has no
    record of the attempt, the agent reports the attempt as ended, with the reason `why`.
    """

    job: int
    attempt: int
    grace_s: float = 10.0
    why: str = "cancelled"
    checkpoint_s: float = 0.0


@dataclass(frozen=True)
class TimeLimit:
    """Extend the time limit of a running attempt to `time_limit_s` seconds from the start of the attempt."""

    job: int
    attempt: int
    time_limit_s: float


STEP_VARIABLE = "CORRAL_STEP"
"""srun sets this environment variable of its tasks to the name of the step, such as 7.0."""


class SignalTo(str, enum.Enum):
    """The processes of a job to which a signal is sent."""

    HANDLERS = ""
    """Only the processes that have a handler for the signal, because the signal would end any other process.
    """
    STEPS = "steps"
    """The tasks that srun has started in the job."""
    BATCH = "batch"
    """The batch script without its child processes."""
    FULL = "full"
    """The batch script and the tasks that srun has started."""


@dataclass(frozen=True)
class Signal:
    """Send a signal to those processes of an attempt that `to` selects. If `step` is set, only the tasks of
    the step with this number get the signal. If the signal cancels the step, `by` is the user that cancels
    it; otherwise `by` is empty.
    """

    job: int
    attempt: int
    signal: str
    to: SignalTo = SignalTo.HANDLERS
    step: Optional[int] = None
    by: str = ""


@dataclass(frozen=True)
class Save:
    """Let an attempt save a checkpoint: send the checkpoint signal, and run the checkpoint command. The
    attempt continues.
    """

    job: int
    attempt: int


@dataclass(frozen=True)
class Note:
    """Append a message for the user to the stderr of an attempt, and show it on the open terminals of the
    attempt.
    """

    job: int
    attempt: int
    text: str


@dataclass(frozen=True)
class Settle:
    """The controller has stored the end of this attempt, so the agent no longer reports it. The logs stay
    until log retention deletes the logs.
    """

    job: int
    attempt: int


@dataclass(frozen=True)
class ReadLog:
    """Send the log of an attempt from byte `offset` on. A negative offset counts from the end of the log.

    With `follow` the agent also sends new output until the attempt has ended.
    """

    request: int
    job: int
    attempt: int
    stream: str = "stdout"
    offset: int = 0
    follow: bool = False


@dataclass(frozen=True)
class SearchLog:
    """Search the log of an attempt for a text, from byte `offset` on. With `back`, search towards the
    beginning of the log. A negative offset is the end of the log. The answer is a LogFound.
    """

    request: int
    job: int
    attempt: int
    text: str
    stream: str = "stdout"
    offset: int = 0
    back: bool = False


@dataclass(frozen=True)
class StopReading:
    """End the ReadLog or SearchLog order with this number, because the client has closed its connection."""

    request: int


@dataclass(frozen=True)
class CheckGpu:
    """Check a faulty GPU in `after_s` seconds and answer with GpuChecked. A second CheckGpu for the same GPU
    replaces the first.
    """

    uuid: str
    after_s: float = 0.0


@dataclass(frozen=True)
class ResetGpu:
    """Reset an unused GPU in `after_s` seconds by running `command` with the GPU's UUID as last argument. A
    later CheckGpu for the same GPU cancels the reset.
    """

    uuid: str
    command: tuple[str, ...]
    after_s: float = 0.0


@dataclass(frozen=True)
class OpenShell:
    """Run a command of `corral exec` in the allocation of a running attempt. If `command` is empty, run the
    user's login shell. `step` is True for a task of srun. With `pmi` the command gets a socket for PMI (the
    interface by which MPI processes find each other) as file descriptor PMI_FD. `variables` are added to the
    environment of the command.

    If `task` is not empty, it is the name of a task of srun. Such a task outlives the agent. If the task
    already runs, do not start it again, but send its output after the first `received` bytes as answers to
    this request. With `resume` a task that does not exist is not started.
    """

    request: int
    job: int
    attempt: int
    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""
    step: bool = False
    pmi: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    task: str = ""
    received: int = 0
    resume: bool = False


@dataclass(frozen=True)
class ShellInput:
    """Input for a `corral exec` command, as base64. If `end` is True, the command's stdin is closed. With
    `pmi` the data goes to the command's socket for PMI and not to stdin.
    """

    request: int
    data: str = ""
    end: bool = False
    pmi: bool = False


@dataclass(frozen=True)
class ShellSignal:
    """Send a signal such as USR1 to the process of a command."""

    request: int
    signal: str


@dataclass(frozen=True)
class ShellTaken:
    """The client has read `size` bytes of a command's output, so the agent may send `size` more bytes."""

    request: int
    size: int


@dataclass(frozen=True)
class ResizeShell:
    """The user has changed the size of the terminal window in which a command runs."""

    request: int
    rows: int
    columns: int


@dataclass(frozen=True)
class CloseShell:
    """End a `corral exec` command, because its client has closed the connection. With `keep`, a task of srun
    continues, because only the connection to the node of srun was lost and srun may connect again.
    """

    request: int
    keep: bool = False


@dataclass(frozen=True)
class Ping:
    """Answer with Pong, and renew the leases of all attempts on the host.

    `heard` is the time at which the controller last received a message from this agent, by the host's clock,
    in seconds since boot. Leases are renewed from that time and not from the arrival of this Ping, because
    the network may delay the Ping for minutes.

    `journal` is the newest journal entry of the controller: its epoch, number and hash. The agent remembers
    this entry, and names it in its next Hello. Empty if the cluster can have only one controller.
    """

    beat: int
    heard: Optional[float] = None
    journal: str = ""


@dataclass(frozen=True)
class Leave:
    """Close the connection and exit. Running attempts continue without the agent."""
