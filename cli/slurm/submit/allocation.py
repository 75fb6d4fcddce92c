"""Gets an allocation for srun and salloc: a job that holds its nodes until srun or salloc ends this job."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType

from cli.slurm.programs import SlurmError
from cli.slurm.refusals import submit_refused
from cli.slurm.submit.sbatch import in_best_partition, require_reservations
from cli.slurm.submit.sbatch_to_spec import BatchRequest, allocation
from wire.api.jobs import JobView, ShellRequest
from wire.cluster.hostlist import fold_hostlist
from wire.http.client import Client, Refused, Unreachable
from wire.names import SLURM_QOS

ALLOCATION_VARIABLE = "CORRAL_ALLOCATION"
"""The name of an environment variable with a random text, which is a part of the name of the pipe in
`_HOLDER`. The job of an allocation and the command of salloc get this variable. Other users cannot read the
text.
"""
_HOLDER = (
    f'f=/tmp/corral-allocation-${ALLOCATION_VARIABLE}; mkfifo -m 600 "$f" || exit 1; '
    'read -r code < "$f"; rm -f "$f"; exit "${code:-0}"'
)
"""The command of the job that holds the nodes. It creates a named pipe, waits for an exit code in the pipe,
and exits with this code. The name of the pipe is random, because other users of the host could otherwise
guess the name and create a file or a link there.
"""
_FINISH = (
    f"f=/tmp/corral-allocation-${ALLOCATION_VARIABLE}; n=0; "
    'while [ ! -p "$f" ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done; echo "$1" > "$f"'
)


def nodes_of(job: str) -> str:
    """Return the nodes of a running job as a host list, such as n[1-4]. Raise SlurmError if the job holds
    none.
    """
    with Client() as client:
        held = client.job(job).job.held
    if not held:
        raise SlurmError(f"Unable to confirm allocation for job {job}: Invalid job id specified")
    return fold_hostlist(each.node for each in held)


class Allocation:
    """Context manager that submits a job and waits until the job runs. The end of the `with` block ends the
    job with the exit code `code`. An exception in the block cancels the job.
    """

    def __init__(
        self,
        program: str,
        options: tuple[tuple[str, str], ...],
        name: str,
        environment: Mapping[str, str],
        *,
        quiet: bool = False,
    ) -> None:
        umask = os.umask(0o077)
        os.umask(umask)
        directory = os.getcwd()
        host = socket.gethostname().partition(".")[0]
        request = BatchRequest("", name, (), options, environment, directory, host, umask)
        made = allocation(request, f"{program.upper()}_", ("/bin/sh", "-c", _HOLDER))
        self._secret = secrets.token_hex(16)
        env = {**made.spec.env, ALLOCATION_VARIABLE: self._secret}
        self._made = replace(made, spec=replace(made.spec, env=env))
        self._program = program
        self._quiet = quiet
        self.code = 0
        self.job = 0
        self.nodes: list[str] = []
        self.variables: dict[str, str] = {}

    def __enter__(self) -> Allocation:
        from cli.jobs.wait import changes

        salloc = self._program == "salloc"
        action = "Job submit/allocate failed" if salloc else "Unable to allocate resources"
        require_reservations(self._made, action)
        self._made = in_best_partition(self._made, action)
        try:
            with Client() as client:
                self.job = client.submit(self._made.spec).ids[0]
        except Refused as refused:
            raise submit_refused(refused, self._made.spec, action) from None
        waited = False
        try:
            for view in changes([self.job]):
                if view.state.value == "RUNNING":
                    if waited:
                        self._say(f"job {self.job} has been allocated resources")
                    self._fill(view)
                    return self
                if view.state.terminal:
                    raise SlurmError(
                        f"Job allocation {self.job} has been revoked: {view.detail or view.reason.value}"
                    )
                if not waited and view.state.value == "QUEUED" and view.reason.value not in ("", "new"):
                    waited = True
                    self._say(f"job {self.job} queued and waiting for resources")
        except BaseException:
            self._cancel()
            raise
        raise SlurmError(f"Job allocation {self.job} has been revoked")

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._cancel()
            return
        from cli.jobs.wait import wait_until_ended

        words = ("/bin/sh", "-c", _FINISH, "corral", str(self.code & 255))
        try:
            with Client() as client:
                shell = client.open_shell(self.job, ShellRequest(words, node=self.nodes[0]))
                for said in client.read_shell(shell):
                    if said.end and said.code:
                        self._cancel()
            wait_until_ended([self.job])
        except (Refused, Unreachable):
            self._cancel()

    def _cancel(self) -> None:
        try:
            with Client() as client:
                client.cancel(self.job)
        except (Refused, Unreachable):
            # Ignore the error. If the job has not ended, the user must cancel it by hand.
            pass

    def _say(self, sentence: str) -> None:
        if not self._quiet:
            print(f"{self._program}: {sentence}", file=sys.stderr, flush=True)

    def _fill(self, view: JobView) -> None:
        """Set `nodes` to the nodes of the job, and `variables` to the environment variables that a batch
        script of this job would get.
        """
        with Client() as client:
            cluster = client.cluster().name
            settings = {each.name: each.settings for each in client.queues().queues}
        qos = settings.get(view.queue, {}).get("qos") or SLURM_QOS
        self.nodes = [held.node for held in view.held]
        count, listed = str(len(self.nodes)), fold_hostlist(self.nodes)
        cpus, times = max(1, view.cpu_milli // 1_000), f"(x{len(self.nodes)})" if len(self.nodes) > 1 else ""
        tasks = {name: value for name, value in self._made.spec.env.items() if name.startswith("SLURM_")}
        self.variables = {
            ALLOCATION_VARIABLE: self._secret,
            "SLURM_CLUSTER_NAME": cluster,
            "SLURM_JOB_ID": str(self.job),
            "SLURM_JOBID": str(self.job),
            "SLURM_JOB_NAME": view.name,
            "SLURM_JOB_ACCOUNT": view.project,
            "SLURM_JOB_PARTITION": view.queue,
            "SLURM_JOB_QOS": qos,
            "SLURM_JOB_USER": view.user,
            "SLURM_JOB_UID": str(os.getuid()),
            "SLURM_JOB_CPUS_PER_NODE": f"{cpus}{times}",
            "SLURM_JOB_NUM_NODES": count,
            "SLURM_NNODES": count,
            "SLURM_JOB_NODELIST": listed,
            "SLURM_NODELIST": listed,
            "SLURM_TASKS_PER_NODE": f"{self._made.spec.tasks_per_node}{times}",
            **tasks,
        }
