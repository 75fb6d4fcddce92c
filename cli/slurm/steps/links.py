"""The two ways by which srun records its step and reaches other nodes: the agent of its node, and the
controller's API.
"""

from __future__ import annotations

import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from wire.job.steps import Step

Output = Callable[[str, bytes], None]
"""A function that is called with output of a task: the stream (stdout, stderr or pmi) and the bytes."""


@dataclass(frozen=True)
class TaskEnd:
    """The end of a task. `code` is the exit code, or -N if signal N ended the task. `error` is the reason if
    Corral could not start the task or has ended the task.
    """

    code: int
    error: str = ""
    cpu_s: float = 0.0
    max_rss_kib: int = 0


@dataclass(frozen=True)
class RemoteCommand:
    """A command for another node of the job. The agent of that node adds `variables` to the environment of
    the command. `variables` are not passed as arguments, because all users of a host can read the arguments
    of a process.
    """

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    pmi: bool = False


class StepLink(Protocol):
    """Records the step of one srun, and runs its tasks on other nodes."""

    def connect(self) -> None:
        """Connect to the agent without recording a step. Raise LinkLost if the agent does not answer."""

    def record(self, step: Step) -> int:
        """Record the beginning of the step if the step has no number yet, otherwise its end. Return the
        number of the step.
        """

    def update(self, step: Step) -> None:
        """Report the usage of the running step since its start, without waiting for an answer."""

    def open(
        self,
        rank: int,
        node: str,
        command: RemoteCommand,
        output: Output,
        end: Callable[[TaskEnd], None],
    ) -> None:
        """Start a task on another node. Another thread calls `output` with the output of the task, and `end`
        when the task has ended.
        """

    def write(self, rank: int, data: bytes, *, end: bool = False, pmi: bool = False) -> None:
        """Send bytes to the stdin of a task; with `pmi`, to its socket for PMI. With `end`, also close the
        stdin.
        """

    def signal(self, number: int) -> None:
        """Send a signal to all tasks on other nodes."""

    def close(self) -> None:
        """End all tasks on other nodes that still run."""


class ApiLink:
    """A StepLink that uses the API of the controller. srun needs this link on hosts without an agent, such as
    login hosts.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._clients: dict[int, Any] = {}
        self._shells: dict[int, str] = {}
        self._opened: dict[int, threading.Event] = {}
        self._ended: set[int] = set()

    def update(self, step: Step) -> None:
        """Do nothing, because srun cannot measure tasks on other nodes."""

    def connect(self) -> None:
        """Do nothing, because each request connects to the controller."""

    def record(self, step: Step) -> int:
        from wire.http.client import Client, Refused, Unreachable

        try:
            with Client() as client:
                return client.record_step(self._job, step)
        except (Refused, Unreachable) as error:
            if step.number < 0:
                raise
            raise LinkLost(str(error)) from None

    def open(
        self,
        rank: int,
        node: str,
        command: RemoteCommand,
        output: Output,
        end: Callable[[TaskEnd], None],
    ) -> None:
        if command.pmi:
            end(TaskEnd(1, "PMI works only with srun in the job: write srun into the batch script"))
            return
        self._opened[rank] = threading.Event()
        threading.Thread(target=self._run, args=(rank, node, command, output, end), daemon=True).start()

    def _run(
        self, rank: int, node: str, command: RemoteCommand, output: Output, end: Callable[[TaskEnd], None]
    ) -> None:
        from wire.api.jobs import ShellRequest
        from wire.http.client import Client, Refused, Unreachable

        try:
            with Client() as client:
                self._clients[rank] = client
                request = ShellRequest(command.words, node=node, variables=command.variables)
                shell = self._shells[rank] = client.open_shell(self._job, request)
                self._opened[rank].set()
                for said in client.read_shell(shell):
                    if not said.end:
                        output(said.stream, b64decode(said.data))
                        continue
                    code = -said.signal if said.signal else 1 if said.code is None else said.code
                    end(TaskEnd(code, said.error))
                    return
            end(TaskEnd(1, "the controller has closed the connection"))
        except (Refused, Unreachable, OSError) as error:
            hint = (
                "" if isinstance(error, Refused) else ": srun starts tasks on other nodes by the controller"
            )
            end(TaskEnd(1, f"{error}{hint}"))
        finally:
            self._ended.add(rank)
            self._opened[rank].set()

    def write(self, rank: int, data: bytes, *, end: bool = False, pmi: bool = False) -> None:  # noqa: ARG002
        from wire.api.jobs import ShellGiven
        from wire.http.client import Client, Refused, Unreachable

        self._opened[rank].wait()
        with suppress(Refused, Unreachable, OSError, KeyError), Client() as client:
            client.write_shell(self._shells[rank], ShellGiven(b64encode(data).decode(), end=end))

    def signal(self, number: int) -> None:  # noqa: ARG002
        """End all tasks, because the API cannot send signals to them: each task runs as a command of `corral
        exec`.
        """
        self.close()

    def close(self) -> None:
        for rank, client in list(self._clients.items()):
            if rank not in self._ended:
                client.close()


class LinkLost(Exception):
    """Raised if the agent or the controller does not answer. The message is the reason."""


def node_of(job: str, environment: Mapping[str, str]) -> str:
    """Return the node of this process if the process runs in the job; otherwise an empty text. This is
    decided by CORRAL_JOB_ID. SLURM_JOB_ID is not sufficient: if salloc runs in a job, its command has the
    SLURM_JOB_ID of the allocation, but runs in the job that contains salloc.
    """
    return environment.get("SLURMD_NODENAME", "") if environment.get("CORRAL_JOB_ID") == job else ""


def open_link(job: str, environment: Mapping[str, str]) -> StepLink:
    """Return the link for a step of a job: to the agent if srun runs in the job and the agent is found,
    otherwise to the API.
    """
    from cli.slurm.steps.agent_link import AgentLink

    if node_of(job, environment):
        found = AgentLink.find(environment)
        if found is not None:
            return found
    return ApiLink(job)
