"""Reports of agents about attempts, GPUs and processes, and the loss of their connections."""

from __future__ import annotations

from collections.abc import Mapping

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import GpuInput, Input
from wire.agent.reports import AttemptStatus, Hello
from wire.names import GpuHealth, TroubleKind


@dataclass(frozen=True, slots=True)
class AgentSaidHello(Input):
    """An agent has connected. Its hello message contains the hardware of its host, and the state of all
    attempts in its records.
    """

    node: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentReported(Input):
    """An agent has reported the state of one attempt."""

    node: str
    status: AttemptStatus


@dataclass(frozen=True, slots=True)
class MembersReported(Input):
    """Agents have reported the state of several members of one gang. The effect is the same as one
    AgentReported input for each member.
    """

    job: int
    attempt: int
    statuses: Mapping[str, AttemptStatus]


@dataclass(frozen=True, slots=True)
class GpuReported(GpuInput):
    """The health of a GPU, taken from a journal entry. Only the replay of a journal sends this input."""

    health: GpuHealth
    why: str = ""
    needs: str = ""
    falls: int = 0
    good: int = 0
    due: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class GpuTroubled(GpuInput):
    """An agent reported a fault of a GPU."""

    kind: TroubleKind
    why: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class GpuChecked(GpuInput):
    """An agent has checked a GPU that is out of service."""

    ok: bool
    why: str = ""
    lasts: bool = False
    """True if the check failed because the known cause is still present, for example an off-queue process on
    the GPU.
    """


@dataclass(frozen=True, slots=True)
class GpuWasReset(GpuInput):
    """An agent has reset a GPU, or the reset has failed."""

    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class OffQueueProcessSeen(GpuInput):
    """An agent has found a process of a user on a GPU that belongs to no job. No event follows for a further
    process of the user on this GPU.
    """

    user: str
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class OffQueueProcessGone(GpuInput):
    """The user has no more processes outside of jobs on this GPU."""

    user: str


@dataclass(frozen=True, slots=True)
class GpusIdle(Input):
    """All GPUs of a job have been idle since the time `since`, which is more than `[gpus] idle_after_s`
    seconds ago.
    """

    job: int
    attempt: int
    since: float


@dataclass(frozen=True, slots=True)
class HealthReported(Input):
    """The health checks of an attempt began to pass, or have failed so often in a row that the attempt is
    unhealthy.
    """

    job: int
    attempt: int
    healthy: bool
    why: str = ""
    node: str = ""
    """The node of the agent that sent the report; empty in a simulation."""


@dataclass(frozen=True, slots=True)
class GpusBusy(Input):
    """A GPU of a job is busy again, after all GPUs of the job were reported idle."""

    job: int
    attempt: int


@dataclass(frozen=True, slots=True)
class LinkWentDown(Input):
    """The connection to an agent is lost."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeSilent(Input):
    """The agent of a node has not been connected for `for_s` seconds, counted from the loss of the connection
    or from the start of the controller.
    """

    node: str
    for_s: float
