"""Finds the container runtime of this host, and builds the commands that run a job in a container.

With podman and apptainer, the job's processes are descendants of the supervisor, in the host's PID namespace.
They are signalled and ended like the processes of other jobs. With docker, the job's processes are
descendants of the docker daemon; container_supervision.py finds these processes.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from binascii import crc32
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Optional, Sequence

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.isolation.cgroup_limits import cpu_shares
from agent.supervisor.fork_server_client import JOB_OPEN_FILES
from wire.agent.job_policy import JobPolicy
from wire.agent.orders import Start
from wire.dataclass import dataclass

CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
RUNTIMES = ("podman", "docker", "apptainer", "singularity")
"""The supported runtimes, the preferred one first. Podman is preferred, because it needs no daemon."""
SPOOL_LABEL, ATTEMPT_LABEL = "corral.spool", "corral.attempt"
"""The labels of every container. Their values are the spool directory of the agent, and the name of the
attempt to which the container belongs.
"""
_TIMEOUT_S = 5.0
_IMAGE_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR")
"""Variables whose values the image sets, unless the job sets them."""


class CannotUseContainer(Exception):
    """Raised if the job cannot run in a container on this host. The message is the reason."""


@dataclass(frozen=True)
class Mount:
    """The path `source` of the host, which a container sees as the path `target`."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        for path in (self.source, self.target):
            if set(path) & set(',"\n'):
                raise CannotUseContainer(
                    f"{path!r} cannot be mounted: it has a comma, a quote or a newline in it"
                )
        return f"type=bind,source={self.source},target={self.target}" + ",readonly" * self.read_only


def parse_mount(text: str) -> Mount:
    text, _, last = text.rpartition(":") if text.endswith((":ro", ":rw")) else (text, "", "")
    source, _, target = text.partition(":")
    return Mount(source, target or source, last == "ro")


@dataclass(frozen=True)
class ContainerRuntime:
    """A program that runs containers. `devices` is True if the host has real GPUs, which containers can get;
    simulated GPUs are never passed to containers.
    """

    kind: str
    command: tuple[str, ...]
    version: str
    policy: JobPolicy
    devices: bool
    gpu_problem: str = ""
    """The reason why containers cannot use GPUs on this host, with the remedy; empty if containers can use
    GPUs.
    """

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    def describe(self) -> str:
        """Return the name and version of the runtime, as text for `corral nodes show`. If containers cannot
        use the host's GPUs, the text has the reason.
        """
        return f"{self}; no GPUs for containers: {self.gpu_problem}" if self.gpu_problem else str(self)

    def add_container(self, launch: LaunchSpec, order: Start) -> None:
        """Change a launch spec so that each task of the job runs in its own container. Raise
        CannotUseContainer if a mount has a path that container runtimes cannot mount.
        """
        names = [
            f"corral-{crc32(os.fsencode(launch.directory)):08x}-{launch.key}-{number}"
            for number in range(len(launch.tasks))
        ]
        if self.kind == "docker":
            # Remove DOCKER_* variables, because a user could use them to select another docker daemon.
            launch.env = {name: value for name, value in launch.env.items() if not name.startswith("DOCKER_")}
        given = {name for name in order.env if name in launch.env}
        passed_on = given | (set(launch.env) - set(_IMAGE_VARIABLES))
        if self.kind in ("apptainer", "singularity"):
            self._pass_on(launch, passed_on)
            launch.container_commands = [self._exec(launch, order) for _ in names]
            launch.container_exec = launch.container_commands[0]
        else:
            launch.container_commands = [
                self._run(name, launch, order, sorted(passed_on | set(launch.tasks[number])))
                for number, name in enumerate(names)
            ]
            launch.container_exec = [*self.command, "exec", *_option("--workdir", _workdir(launch)), names[0]]
            launch.container_engine, launch.container_names = list(self.command), names

    def exec_command(
        self, launch: LaunchSpec, command: tuple[str, ...], terminal: bool, variables: Iterable[str] = ()
    ) -> list[str]:
        """Return the command line that runs a `corral exec` command in the job's container. With apptainer,
        this command line starts a new container from the same image.

        `variables` are the names of variables in the launch spec to pass into the container. Variables that
        the image sets (_IMAGE_VARIABLES), such as PATH, are not passed.
        """
        words, inside = list(command) or ["/bin/sh"], launch.container_exec
        if self.kind in ("apptainer", "singularity"):
            return [*inside, *words]
        at = len(self.command) + 1
        passed_on = sorted((set(variables) & set(launch.env)) - set(_IMAGE_VARIABLES))
        return [
            *(*inside[:at], "--interactive", *["--tty", "--env", "TERM"] * terminal),
            *(f"--env={name}" for name in passed_on),
            *(*inside[at:], *words),
        ]

    def _run(self, name: str, launch: LaunchSpec, order: Start, passed_on: list[str]) -> list[str]:
        docker = self.kind == "docker"
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = self.policy.max_processes if processes < 0 else min(processes, self.policy.max_processes)
        return [
            *self.command,
            "run",
            f"--name={name}",
            *(f"--label={SPOOL_LABEL}={_spool(launch)}", f"--label={ATTEMPT_LABEL}={launch.key}"),
            # Use the host's network, so that the members of a gang can connect to each other.
            *("--entrypoint=", "--network=host", "--log-driver=none", "--security-opt=label=disable"),
            # Set no higher ulimits than those of the agent: an agent that runs in a container may not be
            # allowed to do so.
            *(f"--ulimit=nofile={min(JOB_OPEN_FILES, hard)}:{hard}", f"--ulimit=nproc={most}:{most}"),
            *(["--init", "--ipc=host"] if docker else ["--pid=host"]),
            *self._user(launch, docker),
            *self._limits(launch, order, docker),
            *self._gpus(order, docker),
            *(f"--mount={each}" for each in self._mounts(launch, order, shared=not docker)),
            *_option("--workdir", _workdir(launch)),
            *(f"--env={variable}" for variable in passed_on),
            *self.policy.containers.options,
            order.image,
        ]

    def _exec(self, launch: LaunchSpec, order: Start) -> list[str]:
        image = order.image
        if "://" not in image and not image.startswith("/"):
            image = f"docker://{image}"
        return [
            *self.command,
            *("exec", "--cleanenv", "--no-home"),
            *["--nv"] * bool(order.gpus and self.devices),
            *(word for each in self._mounts(launch, order) for word in ("--mount", str(each))),
            *(("--pwd", _workdir(launch)) if _workdir(launch) else ()),
            *self.policy.containers.options,
            image,
        ]

    def _pass_on(self, launch: LaunchSpec, passed_on: set[str]) -> None:
        """Copy the variables in `passed_on` and the variables of each task to names with the prefix
        APPTAINERENV_ (for singularity: SINGULARITYENV_), because only variables with this prefix are passed
        into the container.
        """
        prefix = f"{self.kind.upper()}ENV_"
        launch.env.update(
            {prefix + name: launch.env[name] for name in sorted(passed_on) if name in launch.env}
        )
        launch.tasks = [{**task, **{prefix + name: task[name] for name in task}} for task in launch.tasks]

    def _user(self, launch: LaunchSpec, docker: bool) -> list[str]:
        """Return the options that make processes in the container run with the uid and gid of the job's
        user.
        """
        uid, gid = launch.user[:2] if launch.user is not None else (os.geteuid(), os.getegid())
        if docker:
            groups = launch.user[2] if launch.user is not None else os.getgroups()
            return [f"--user={uid}:{gid}", *(f"--group-add={group}" for group in sorted(set(groups) - {gid}))]
        return ["--userns=keep-id"] * bool(uid)

    def _limits(self, launch: LaunchSpec, order: Start, docker: bool) -> list[str]:
        """Return the options for CPU and memory limits; empty if jobs have no limits. With podman, the result
        is also empty for a job that does not run as root, because its container is in the cgroup of the
        attempt and this cgroup has the limits.
        """
        uid = launch.user[0] if launch.user is not None else os.geteuid()
        if self.policy.limits == "none" or (uid and not docker):
            return []
        cpu, memory = order.most_cpu_milli, order.most_memory_mib
        if cpu is not None:
            # Reduce the CPU limit to the CPUs of the host, because docker refuses a higher limit. A node with
            # overcommit offers more CPUs than its host has.
            cpu = min(cpu, 1_000 * (os.cpu_count() or 1))
        return [
            f"--cpu-shares={cpu_shares(order)}",
            *([] if order.best_effort else [f"--memory-reservation={order.memory_mib}m"]),
            f"--pids-limit={self.policy.max_processes}",
            *([f"--cpus={cpu / 1_000:g}"] if cpu is not None else []),
            *([f"--memory={memory}m", f"--memory-swap={memory}m"] if memory is not None else []),
            *([f"--oom-score-adj={launch.oom_score}"] if launch.oom_score else []),
            *([f"--cpuset-cpus={','.join(map(str, launch.cpus))}"] if docker and launch.cpus else []),
        ]

    def _gpus(self, order: Start, docker: bool) -> list[str]:
        if not order.gpus or not self.devices:
            return []
        uuids = [hold.uuid for hold in order.gpus]
        if docker:
            return [f'--gpus="device={",".join(uuids)}"']
        return [f"--device=nvidia.com/gpu={uuid}" for uuid in uuids]

    def _mounts(self, launch: LaunchSpec, order: Start, shared: bool = False) -> list[Mount]:
        """Return the mounts of the container: the working, checkpoint and scratch directories of the job,
        then the mounts of the site, then the mounts that the job requests. With `shared`, the first mount is
        /dev/shm of the host. If two mounts have the same target path, the later one is used.
        """
        mounts = [Mount("/dev/shm", "/dev/shm")] * shared  # noqa: S108 - as large as the host's, for loaders
        own = _workdir(launch), launch.checkpoint_dir, launch.scratch_dir
        mounts += [Mount(each, each) for each in own if each]
        mounts += map(parse_mount, (*self.policy.containers.mounts, *order.mounts))
        return list({each.target: each for each in mounts}.values())


def _workdir(launch: LaunchSpec) -> str:
    """Return the working directory in the container; empty if the image sets the working directory."""
    return launch.cwd if launch.cwd != "/" else ""


def _spool(launch: LaunchSpec) -> str:
    return os.path.dirname(os.path.dirname(launch.directory))


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value else []


def find_runtime(policy: JobPolicy, gpus: Sequence[str]) -> Optional[ContainerRuntime]:
    """Return the container runtime of this host. If the site has configured a runtime, only this runtime is
    tried. If the site has configured none, the first installed runtime that works is returned. Return None if
    no tried runtime works.

    `gpus` are the UUIDs of the host's real GPUs. Simulated GPUs are not passed to containers.
    """
    for command in candidate_commands(policy):
        kind = runtime_kind(command)
        version = _output(*command, *version_arguments(kind))
        if version:
            problem = gpu_problem(kind, command, gpus) if gpus else ""
            return ContainerRuntime(kind, command, version.split()[-1][:40], policy, bool(gpus), problem)
    return None


def candidate_commands(policy: JobPolicy) -> list[tuple[str, ...]]:
    """Return the commands of the installed runtimes, with full path, in the order of preference. If the site
    has configured a runtime, the result has only this runtime, or is empty if it is not installed.
    """
    named, found = policy.containers.command, []
    for command in [named] if named else [(each,) for each in RUNTIMES]:
        path = shutil.which(command[0])
        if path is not None:
            whole = (path, *command[1:])
            if runtime_kind(whole) == "podman" and not os.path.isdir("/run/systemd/system"):
                whole += ("--cgroup-manager=cgroupfs",)
            found.append(whole)
    return found


def runtime_kind(command: Sequence[str]) -> str:
    """Return which of RUNTIMES a command is, from the name of its program; podman if the name matches none of
    them.
    """
    return next((each for each in RUNTIMES if each in os.path.basename(command[0])), "podman")


def version_arguments(kind: str) -> tuple[str, ...]:
    """Return the arguments that print the version of a runtime. For docker, the arguments also query the
    daemon, so that the command fails without a running daemon.
    """
    return ("version", "--format", "{{.Server.Version}}") if kind == "docker" else ("--version",)


def gpu_problem(kind: str, command: Sequence[str], gpus: Sequence[str]) -> str:
    """Return the reason why a runtime of this kind cannot pass the GPUs with the UUIDs in `gpus` to a
    container, with the remedy. Return an empty text if the runtime can pass these GPUs.

    Docker needs the NVIDIA runtime or its hook. Podman needs a CDI entry for the UUID of each GPU and MIG
    instance. Apptainer needs no configuration.
    """
    if kind == "docker":
        if '"nvidia"' in _output(*command, "info", "--format", "{{json .Runtimes}}"):
            return ""
        if shutil.which("nvidia-container-runtime-hook") or shutil.which("nvidia-container-toolkit"):
            return ""
        return "docker has no NVIDIA runtime: install nvidia-container-toolkit, then restart docker"
    if kind == "podman":
        known = _cdi_entries()
        missing = [gpu for gpu in gpus if gpu not in known]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            remedy = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
            return f"no CDI entry names {missing[0]}{more}: run '{remedy}'"
    return ""


def _cdi_entries() -> str:
    """Return the text of all CDI (Container Device Interface) specifications of this host. They list the
    devices that podman can pass to a container.
    """
    texts = []
    for folder in CDI_DIRS:
        for path in sorted(Path(folder).glob("*.[jy][sa][om]*")):
            with suppress(OSError):
                texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def _output(*command: str) -> str:
    """Run a command and return its stdout; empty if the command fails or takes too long."""
    try:
        done = subprocess.run(list(command), capture_output=True, timeout=_TIMEOUT_S, cwd="/", check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
