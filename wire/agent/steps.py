"""The messages about steps (srun): between srun and the agent of its node on a Unix socket, and between
agents and the controller.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import field
from typing import Mapping

from wire.dataclass import dataclass
from wire.job.steps import Step

SOCKET = "steps.sock"
SHARED_DIRECTORY = "/run/corral-agent"
"""The directory of the sockets of agents that run as root. These sockets are not in the spool, because users
cannot enter the spool of an agent that runs as root.
"""


@dataclass(frozen=True)
class StepHello:
    """The first message of srun on the socket of the agent. `attempt` is the name of srun's attempt, such as
    42.1. `mark` is the value of CORRAL_MARK, which proves that srun belongs to the attempt. `version` is 0
    for an srun of an earlier version of Corral, which does not support RunTask.
    """

    attempt: str
    mark: str
    version: int = 0


VERSION = 1
"""The `version` that the srun of this release of Corral sends in StepHello."""


@dataclass(frozen=True)
class StepCall:
    """The beginning, the usage or the end of a step. srun also sends a StepCall when it connects again after
    a lost connection. The agent of the job's first node records the step, and answers with StepNumber.
    """

    request: int
    job: int
    attempt: int
    step: Step


@dataclass(frozen=True)
class StepNumber:
    """The answer to StepCall: the number of the step, or the reason why the call was refused."""

    request: int
    number: int = -1
    error: str = ""


@dataclass(frozen=True)
class StepsReport:
    """The steps of a running attempt that have begun or ended since the last StepsReport. The first
    StepsReport after a Hello has all steps of the attempt. The controller keeps steps in memory only, because
    the report of the attempt's end has all steps again.
    """

    job: int
    attempt: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class OpenTask:
    """Start a task of a step on another node of the attempt. Only an srun with version 0 sends this message.
    If the connection between srun and the task is lost, the task ends. The controller passes the message to
    the agent of that node, and passes the output of the task to srun. `variables` are added to the
    environment of the task.
    """

    request: int
    job: int
    attempt: int
    node: str
    command: tuple[str, ...]
    pmi: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunTask:
    """Start a task of a step on another node of the attempt, or connect to a running task again. The task
    continues while an agent or the controller is restarted. `task` is the name of the task, which srun
    chooses. `received` is the number of bytes of the output that srun has already received. With `resume` the
    task was started before, and a task that does not exist is not started.
    """

    request: int
    job: int
    attempt: int
    node: str
    task: str
    command: tuple[str, ...] = ()
    pmi: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    received: int = 0
    resume: bool = False


@dataclass(frozen=True)
class InputTaken:
    """The number of bytes that a task has read since its start: from its stdin, and from its socket for PMI
    (the interface by which MPI processes find each other). After a lost connection, srun sends the bytes
    after these numbers again. srun never sends more than STEP_INPUT_WINDOW unread bytes of stdin. An
    InputTaken is also the first answer to RunTask, and shows that the task exists.
    """

    request: int
    stdin: int = 0
    pmi: int = 0


STEP_INPUT_WINDOW = 64 << 10
"""srun sends no more stdin to a task while the task has this many unread bytes of stdin. With this value, the
unread input of all tasks of a node stays below the size at which the controller closes the connection to the
agent.
"""


@dataclass(frozen=True)
class TaskAway:
    """The answer to RunTask, or to a later message about the task, if the node of the task has no connection
    to the controller. srun then sends RunTask again after a pause.
    """

    request: int
    why: str


def socket_path(spool: str, uid: int) -> str:
    """Return the path of the socket on which an agent with this uid and this spool listens for srun."""
    if uid:
        return f"{spool}/{SOCKET}"
    return f"{SHARED_DIRECTORY}/{hashlib.sha256(os.fsencode(spool)).hexdigest()[:24]}.sock"
