"""The launch spec: the message from the agent to the fork server with everything that a supervisor needs for
an attempt.
"""

from __future__ import annotations

import marshal

from agent.isolation.attempt_cgroup import CgroupSpec

LENGTH_BYTES = 4


class LaunchSpec:
    """The settings with which a supervisor runs one attempt. The agent has already looked up users, paths and
    devices.

    Format: 4 bytes with the length (big endian), then a marshalled dict from each field's name to its value.
    This class uses marshal and no dataclass, because the fork server must stay small: `dataclasses` alone
    needs 2.8 MiB.
    """

    def __init__(self, key: str, directory: str) -> None:
        # --- name and directory of the attempt ---
        self.key = key
        """The name of the attempt, such as 42.1 for attempt 1 of job 42."""
        self.directory = directory
        """The attempt's directory in the spool. It has the record, the logs and the orders."""
        self.mark_key = ""
        """The HMAC key with which the processes of the attempt are marked (process_marks.py)."""

        # --- program, user and output of the job ---
        self.argv: list[str] = []
        self.env: dict[str, str] = {}
        self.tasks: list[dict[str, str]] = [{}]
        """For each task, the variables that only this task gets, in addition to `env`."""
        self.cwd = "/"
        self.user: tuple[int, int, list[int]] | None = None
        """uid, gid and groups of the job's user; None if the job runs as the agent's user."""
        self.umask: int | None = None
        self.output = ""
        self.error = ""
        self.append = False
        self.merge_output = False
        self.slurm_job = ""
        """A text such as `JOB 12 ON n1` for a job of sbatch that has an output file; otherwise empty. If the
        job is cancelled, the supervisor writes a line with this text to the file (slurm_notice.py).
        """
        self.log_bytes = 0
        """The largest size of each log in bytes; 0 means no limit."""

        # --- resources and limits of the job ---
        self.cpus: list[int] = []
        self.numa: list[int] = []
        self.cgroups: list[CgroupSpec] = []
        self.memory_mib = 0
        self.oom_score = 0
        self.scratch_dir = ""
        self.scratch_mib = 0
        self.end_if_scratch_full = True
        """Whether a job that exceeds its scratch size is ended. If False, the job only gets a notice."""

        # --- start and end of the job ---
        self.barrier = False
        """Whether the attempt waits for the file `go` before its program starts, as gang members do."""
        self.is_first_rank = False
        """Whether this node is the first node of the job, and the job has a MASTER_PORT. The processes of the
        job connect to this port on the first node.
        """
        self.time_limit_s: float | None = None
        self.grace_s = 0.0
        self.warn: tuple[int, float] | None = None
        """The number of a signal, and the seconds before the time limit at which the signal is sent."""
        self.lease_s: float | None = None
        self.prolog: list[str] = []
        self.epilog: list[str] = []
        self.hook_timeout_s = 0.0
        self.hook_env: dict[str, str] = {}

        # --- checkpoints of the job ---
        self.checkpoint_command: list[str] = []
        self.checkpoint_signal = 0
        self.checkpoint_dir = ""
        self.checkpoint_keep = 0
        self.checkpoint_mib = 0

        # --- containers of a job with an image ---
        self.container_commands: list[list[str]] = []
        """For each task, the command line that runs its container. `argv` is appended to this command line.
        Empty if the job has no image.
        """
        self.container_exec: list[str] = []
        """The command line that runs another command, such as that of `corral exec`, in the container of the
        first task. The other command is appended.
        """
        self.container_engine: list[str] = []
        """podman or docker with its options. A subcommand such as `inspect` is appended."""
        self.container_names: list[str] = []
        """For each task, the name of its container; empty for apptainer."""

    @property
    def is_docker(self) -> bool:
        return bool(self.container_engine) and "docker" in self.container_engine[0].rpartition("/")[2]

    @property
    def is_podman(self) -> bool:
        return bool(self.container_engine) and not self.is_docker

    def pack(self) -> bytes:
        body = marshal.dumps(vars(self))
        return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_spec(buffer: bytearray) -> LaunchSpec | None:
    """Remove the first launch spec from the bytes that have arrived, and return the launch spec. Return None
    if the launch spec has not arrived completely.
    """
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if len(buffer) < max(end, LENGTH_BYTES + 1):
        return None
    fields = marshal.loads(buffer[LENGTH_BYTES:end])  # noqa: S302 - from the agent that started this process
    del buffer[:end]
    spec = LaunchSpec(fields["key"], fields["directory"])
    vars(spec).update(fields)
    return spec
