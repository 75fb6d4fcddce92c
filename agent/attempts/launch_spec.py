"""The complete description of one launch, as the agent sends it to the fork server."""

from __future__ import annotations

import marshal

from agent.isolation.attempt_cgroup import CgroupSpec

LENGTH_BYTES = 4


class LaunchSpec:
    """Everything that a supervisor needs to run one attempt: users, paths and devices are looked up already.

    Wire format: 4 bytes of length (big endian), then a marshalled dict of these fields by name.

    Marshal and plain attributes, because the fork server must stay small: `dataclasses` alone takes 2.8 MiB.
    """

    def __init__(self, key: str, directory: str) -> None:
        # identity
        self.key = key
        """Job and attempt, such as 42.1."""
        self.directory = directory
        """The attempt's directory in the spool: record, logs, orders."""
        self.mark_key = ""
        """Key of the HMAC marks of this spool (process_marks.py)."""

        # the process
        self.argv: list[str] = []
        self.env: dict[str, str] = {}
        self.tasks: list[dict[str, str]] = [{}]
        """One entry per task: the variables in which it differs from `env`."""
        self.cwd = "/"
        self.user: tuple[int, int, list[int]] | None = None
        """uid, gid and groups to change to; None if the job runs as the agent's user."""
        self.umask: int | None = None
        self.output = ""
        self.error = ""
        self.append = False
        self.merge_output = False
        self.log_bytes = 0
        """Bytes that each log may keep; 0 without a limit."""

        # resources
        self.cpus: list[int] = []
        self.numa: list[int] = []
        self.cgroups: list[CgroupSpec] = []
        self.memory_mib = 0
        self.oom_score = 0
        self.scratch_dir = ""
        self.scratch_mib = 0
        self.end_if_scratch_full = True
        """False: a job that exceeds its scratch gets a notice and goes on."""

        # start and end
        self.barrier = False
        """Whether the attempt waits for `go` when it is ready, as gang members do."""
        self.is_first_rank = False
        """Whether the other processes of the job connect to this attempt at MASTER_PORT."""
        self.time_limit_s: float | None = None
        self.grace_s = 0.0
        self.warn: tuple[int, float] | None = None
        """A signal, and how many seconds before the time limit it is sent."""
        self.lease_s: float | None = None
        self.prolog: list[str] = []
        self.epilog: list[str] = []
        self.hook_timeout_s = 0.0
        self.hook_env: dict[str, str] = {}

        # checkpoints
        self.checkpoint_command: list[str] = []
        self.checkpoint_signal = 0
        self.checkpoint_dir = ""
        self.checkpoint_keep = 0

        # containers
        self.container_commands: list[list[str]] = []
        """Per task the command that runs a container; `argv` follows it. Empty without an image."""
        self.container_exec: list[str] = []
        """The command that runs another command in the first container; that command follows it."""
        self.container_engine: list[str] = []
        """podman or docker with its options; a subcommand such as `inspect` follows."""
        self.container_names: list[str] = []
        """Per task the name of its container; empty for apptainer."""

    @property
    def is_docker(self) -> bool:
        """Whether the containers belong to docker's daemon. Podman's are children of the supervisor."""
        return bool(self.container_engine) and "docker" in self.container_engine[0].rpartition("/")[2]

    @property
    def is_podman(self) -> bool:
        """Whether podman runs the containers."""
        return bool(self.container_engine) and not self.is_docker

    def pack(self) -> bytes:
        """Length and content, as `take_spec` reads them."""
        body = marshal.dumps(vars(self))
        return len(body).to_bytes(LENGTH_BYTES, "big") + body


def take_spec(buffer: bytearray) -> LaunchSpec | None:
    """Remove the first spec from a buffer; None while its bytes are incomplete."""
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if len(buffer) < max(end, LENGTH_BYTES + 1):
        return None
    fields = marshal.loads(buffer[LENGTH_BYTES:end])  # noqa: S302 - from the agent that started this process
    del buffer[:end]
    spec = LaunchSpec(fields["key"], fields["directory"])
    vars(spec).update(fields)
    return spec
