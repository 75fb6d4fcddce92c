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
    """The first message of srun on the socket of the agent. `attempt` is the name of its attempt, such as
    42.1, and `mark` the value of CORRAL_MARK, which proves that srun belongs to the attempt.
    """

    attempt: str
    mark: str


@dataclass(frozen=True)
class StepCall:
    """A step has begun, goes on after an interruption, or has ended. The agent of the job's first node
    records the change, and answers with StepNumber.
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
    the report of the attempt's end has all of them again.
    """

    job: int
    attempt: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class OpenTask:
    """Start a task of a step on another node of the attempt. The controller passes the task to the agent of
    that node, and passes the output of the task back. `variables` are added to
    the environment of the task.
    """

    request: int
    job: int
    attempt: int
    node: str
    command: tuple[str, ...]
    pmi: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def socket_path(spool: str, uid: int) -> str:
    """Return the path of the socket on which an agent with this uid and this spool listens for srun."""
    if uid:
        return f"{spool}/{SOCKET}"
    return f"{SHARED_DIRECTORY}/{hashlib.sha256(os.fsencode(spool)).hexdigest()[:24]}.sock"
