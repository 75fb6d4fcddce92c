"""Which program runs images on this host, and how it is told to run a job as any other job is run.

The processes of a container (podman, apptainer) stay below the supervisor and in the host's PID namespace:
signals, grace and the proof that nothing is left hold for them too. Docker's belong to a daemon: it is asked.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from binascii import crc32
from dataclasses import dataclass
from typing import Optional

from agent.cgroups import shares_of
from agent.cradle import OPEN_FILES
from agent.launch import Launch
from wire.frames import Start
from wire.policy import JobPolicy

RUNTIMES = ("podman", "docker", "apptainer", "singularity")
"""In the order of preference: podman needs no daemon, and a daemon's containers are nobody's children."""
_PATIENCE_S = 5.0
_OF_THE_HOST = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR")
"""Variables that an image has of its own; what the job sets itself beats them."""


class CannotContain(Exception):
    """The job cannot run in a container here; says in words why."""


@dataclass(frozen=True)
class Mount:
    """A place of the host that the container sees."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        for path in (self.source, self.target):
            if set(path) & set(',"\n'):
                raise CannotContain(f"{path!r} cannot be mounted: it has a comma, a quote or a newline in it")
        return f"type=bind,source={self.source},target={self.target}" + ",readonly" * self.read_only


def mount_of(text: str) -> Mount:
    """Read `/data`, `/data:/mnt` or `/data:/mnt:ro`."""
    text, _, last = text.rpartition(":") if text.endswith((":ro", ":rw")) else (text, "", "")
    source, _, target = text.partition(":")
    return Mount(source, target or source, last == "ro")


@dataclass(frozen=True)
class Runtime:
    """A program that runs images; `devices`: the GPUs of this host are real ones."""

    kind: str
    command: tuple[str, ...]
    version: str
    policy: JobPolicy
    devices: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.version}"

    def contain(self, launch: Launch, order: Start) -> None:
        """Make the launch one of a container for each task; raises CannotContain."""
        names = [
            f"corral-{crc32(os.fsencode(launch.place)):08x}-{launch.key}-{number}"
            for number in range(len(launch.tasks))
        ]
        wished = set(order.env) | (set(launch.env) - set(_OF_THE_HOST))
        if self.kind in ("apptainer", "singularity"):
            self._pass_on(launch, wished)
            launch.wraps = [self._exec(launch, order) for _ in names]
            launch.inside = launch.wraps[0]
        else:
            launch.wraps = [
                self._run(name, launch, order, sorted(wished | set(launch.tasks[number])))
                for number, name in enumerate(names)
            ]
            launch.inside = [*self.command, "exec", *_option("--workdir", _place(launch)), names[0]]
            force = ["--force", "--ignore"] if self.kind == "podman" else ["--force"]
            launch.undo = [[*self.command, "rm", *force, name] for name in names]
            told = "{{.State.StartedAt}} {{.State.OOMKilled}}"
            launch.asks = [[*self.command, "inspect", "--format", told, name] for name in names]

    def shell(self, launch: Launch, command: tuple[str, ...], terminal: bool) -> list[str]:
        """A command beside what runs in the container, in the same one where the runtime can do that."""
        words, inside = list(command) or ["/bin/sh"], launch.inside
        if self.kind in ("apptainer", "singularity"):
            return [*inside, *words]
        at = len(self.command) + 1
        return [*inside[:at], "--interactive", *["--tty", "--env", "TERM"] * terminal, *inside[at:], *words]

    def _run(self, name: str, launch: Launch, order: Start, wished: list[str]) -> list[str]:
        docker = self.kind == "docker"
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = self.policy.max_processes if processes < 0 else min(processes, self.policy.max_processes)
        return [
            *self.command,
            "run",
            f"--name={name}",
            # The command is what runs, and it sees the host's network, as a member of a gang has to.
            *("--entrypoint=", "--network=host", "--log-driver=none", "--security-opt=label=disable"),
            # All may be asked for: more than there is would be refused where even root may not raise it.
            *(f"--ulimit=nofile={min(OPEN_FILES, hard)}:{hard}", f"--ulimit=nproc={most}:{most}"),
            *(["--init", "--ipc=host"] if docker else ["--pid=host"]),
            *self._user(launch, docker),
            *self._limits(launch, order, docker),
            *self._gpus(order, docker),
            *(f"--mount={each}" for each in self._mounts(launch, order, shared=not docker)),
            *_option("--workdir", _place(launch)),
            *(f"--env={variable}" for variable in wished),
            *self.policy.containers.options,
            order.image,
        ]

    def _exec(self, launch: Launch, order: Start) -> list[str]:
        image = order.image
        if "://" not in image and not image.startswith("/"):
            image = f"docker://{image}"
        return [
            *self.command,
            *("exec", "--cleanenv", "--no-home"),
            *["--nv"] * bool(order.gpus and self.devices),
            *(word for each in self._mounts(launch, order) for word in ("--mount", str(each))),
            *(("--pwd", _place(launch)) if _place(launch) else ()),
            *self.policy.containers.options,
            image,
        ]

    def _pass_on(self, launch: Launch, wished: set[str]) -> None:
        """Apptainer takes variables for the inside under names of their own."""
        prefix = f"{self.kind.upper()}ENV_"
        launch.env.update({prefix + name: launch.env[name] for name in sorted(wished) if name in launch.env})
        launch.tasks = [{**task, **{prefix + name: task[name] for name in task}} for task in launch.tasks]

    def _user(self, launch: Launch, docker: bool) -> list[str]:
        """Nobody is somebody else inside than he is outside."""
        uid, gid = launch.user[:2] if launch.user is not None else (os.geteuid(), os.getegid())
        if docker:
            return [f"--user={uid}:{gid}"]
        return ["--userns=keep-id"] * bool(uid)

    def _limits(self, launch: Launch, order: Start, docker: bool) -> list[str]:
        """Where root runs it the runtime makes control groups of its own; all others stay in ours."""
        uid = launch.user[0] if launch.user is not None else os.geteuid()
        if self.policy.limits == "none" or (uid and not docker):
            return []
        cpu, memory = order.most_cpu_milli, order.most_memory_mib
        return [
            f"--cpu-shares={shares_of(order)}",
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

    def _mounts(self, launch: Launch, order: Start, shared: bool = False) -> list[Mount]:
        """What every job sees, then what the site and the job itself name; the last on a place counts."""
        places = [Mount("/dev/shm", "/dev/shm")] * shared  # noqa: S108 - as large as the host's, for loaders
        own = _place(launch), launch.checkpoint_dir, launch.scratch
        places += [Mount(each, each) for each in own if each]
        places += map(mount_of, (*self.policy.containers.mounts, *order.mounts))
        return list({each.target: each for each in places}.values())


def _place(launch: Launch) -> str:
    """The working directory; a job without one begins where the image says."""
    return launch.cwd if launch.cwd != "/" else ""


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value else []


def find(policy: JobPolicy, devices: bool) -> Optional[Runtime]:
    """What runs images here: what the site names, else the first that is there and works."""
    named = policy.containers.command
    for command in [named] if named else [(each,) for each in RUNTIMES]:
        path = shutil.which(command[0])
        if path is None:
            continue
        kind = next((each for each in RUNTIMES if each in os.path.basename(path)), "podman")
        whole = (path, *command[1:])
        if kind == "podman" and not os.path.isdir("/run/systemd/system"):
            whole += ("--cgroup-manager=cgroupfs",)
        version = _version(kind, whole)
        if version:
            return Runtime(kind, whole, version, policy, devices)
    return None


def _version(kind: str, command: tuple[str, ...]) -> str:
    """Its version; of docker its daemon's, for without that it runs nothing."""
    asked = ("version", "--format", "{{.Server.Version}}") if kind == "docker" else ("--version",)
    try:
        done = subprocess.run(
            [*command, *asked], capture_output=True, timeout=_PATIENCE_S, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.decode("utf-8", "replace").split()
    return words[-1][:40] if words and done.returncode == 0 else ""
