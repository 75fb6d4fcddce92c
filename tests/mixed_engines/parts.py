"""The foreign systems of the mixed run, each with a way to kill it: Slurm, Docker, SSH hosts and a cloud."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from controller.nodes.ssh.known_hosts import key_line
from tests.agent.dockerd import DockerDaemon
from tests.agent.images import IMAGE
from tests.clients.real_slurm import RealSlurm
from tests.controller.nodes.openssh_server import SETTINGS, SSHD, free_port
from tests.integration.engines.virtual_machines import VirtualMachines
from tests.systems import System
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost

AWAY_S = 5.0
"""The seconds between the kill of a system and its next start."""
COMMON = {"interval_s": 0.5, "timeout_s": 20.0, "lost_after_s": 60.0, "breaker_failures": 2}


class Part(ABC):
    """One of the systems that run jobs at the same time."""

    name: str
    fault: str
    """The fault that `strike` plays."""
    runs_again = False
    """True if `strike` makes the system end jobs, which then run again with a new attempt."""

    @abstractmethod
    def configure(self, system: System) -> None:
        """Add the system to the configuration of the controller."""

    @abstractmethod
    def spec(self, command: tuple[str, ...], place: Path) -> JobSpec:
        """Return a job that runs only on this system. The command writes into `place`."""

    @abstractmethod
    def strike(self) -> None:
        """Kill the system, and start it again after AWAY_S seconds."""

    @abstractmethod
    def left(self) -> list[str]:
        """Return what the jobs have left behind on the system."""


def _job(command: tuple[str, ...], selector: dict[str, str], **more: Any) -> JobSpec:
    values = {"cpu_milli": 1_000, "memory_mib": 64, "workdir": "/", "time_limit_s": 3_600.0, **more}
    return JobSpec(command, selector=selector, **values)


class SlurmPart(Part):
    """A real Slurm. The fault kills slurmctld. A slurmctld that starts again has its last saved state. It
    ends the jobs whose starts were not saved, and runs them again.
    """

    name, fault = "slurm", "slurmctld killed"
    runs_again = True

    def __init__(self, slurm: RealSlurm) -> None:
        self._slurm = slurm
        self._records = Path()

    def configure(self, system: System) -> None:
        self._records = system.place / "records"
        table = {"type": "slurm", "partitions": ["gpu"], "records": str(self._records), **COMMON}
        system.sections.setdefault("engines", {})["slurm"] = table

    def spec(self, command: tuple[str, ...], place: Path) -> JobSpec:
        return _job(command, {"engine": "slurm"}, on_node_lost=OnNodeLost.REQUEUE)

    def strike(self) -> None:
        with self._slurm.killed("slurmctld"):
            time.sleep(AWAY_S)

    def left(self) -> list[str]:
        jobs = self._slurm.run("squeue", "-h").stdout.splitlines()
        return [*jobs, *(map(str, self._records.iterdir()) if self._records.exists() else ())]


class DockerPart(Part):
    """A real dockerd. The fault kills dockerd and containerd; containers continue."""

    name, fault = "docker", "dockerd killed"

    def __init__(self, daemon: DockerDaemon) -> None:
        self._daemon = daemon

    def configure(self, system: System) -> None:
        table = {
            "type": "docker",
            "socket": f"{self._daemon.place}/sock",
            "pull": "never",
            "mount_roots": [str(system.place)],
            "cpus": 8,
            **COMMON,
        }
        system.sections.setdefault("engines", {})["docker"] = table

    def spec(self, command: tuple[str, ...], place: Path) -> JobSpec:
        return _job(command, {"engine": "docker"}, image=IMAGE, mounts=(str(place),))

    def strike(self) -> None:
        self._daemon.kill()
        time.sleep(AWAY_S)
        self._daemon.start()

    def left(self) -> list[str]:
        return self._daemon.names()


class SshPart(Part):
    """Two hosts, each with a real SSH server of its own. The fault kills the servers and all connections."""

    name, fault = "ssh", "SSH servers killed"
    hosts = ("ssh01", "ssh02")

    def __init__(self, place: Path) -> None:
        self._place = place
        self._servers: list[subprocess.Popen[bytes]] = []
        self._ports = {host: free_port() for host in self.hosts}
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(place / "id")
        (place / "id").chmod(0o600)
        (place / "authorized_keys").write_bytes(key.export_public_key())
        known = []
        for host, port in self._ports.items():
            host_key = asyncssh.generate_private_key("ssh-ed25519")
            host_key.write_private_key(place / f"{host}.key")
            (place / f"{host}.key").chmod(0o600)
            known.append(f"[127.0.0.1]:{port} {key_line(host_key)}\n")
        (place / ".ssh").mkdir()
        (place / ".ssh" / "known_hosts").write_text("".join(known))

    def configure(self, system: System) -> None:
        system.sections["nodes"] = {
            host: {
                "ssh": f"root@127.0.0.1:{port}",
                "identity": str(self._place / "id"),
                "spool": str(self._place / f"{host}.spool"),
                "gpus": "simulated:8xH100",
                "cpus": 8,
                "memory": "64G",
                "run_as_self": True,
                "labels": {"part": "ssh"},
            }
            for host, port in self._ports.items()
        }

    def spec(self, command: tuple[str, ...], place: Path) -> JobSpec:
        return _job(command, {"part": "ssh"}, gpus=1)

    def start(self) -> None:
        """Start the SSH servers."""
        assert SSHD is not None
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for host, port in self._ports.items():
            settings = {
                **SETTINGS,
                "ListenAddress": f"127.0.0.1:{port}",
                "HostKey": str(self._place / f"{host}.key"),
                "AuthorizedKeysFile": str(self._place / "authorized_keys"),
                "PermitRootLogin": "yes",
            }
            config = self._place / f"{host}.config"
            config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
            with (self._place / f"{host}.log").open("ab") as log:
                words = [SSHD, "-D", "-e", "-f", str(config)]
                self._servers.append(
                    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )

    def end(self) -> None:
        """Kill the SSH servers and their connections. Supervisors and jobs continue."""
        for server in self._servers:
            for pid in [server.pid, *_children(server.pid, "sshd")]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.wait()
        self._servers.clear()

    def strike(self) -> None:
        self.end()
        time.sleep(AWAY_S)
        self.start()

    def left(self) -> list[str]:
        return []


def _children(pid: int, name: str) -> Iterator[int]:
    """Yield the processes below a process that have this name."""
    with suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                yield child
                yield from _children(child, name)


class CloudPart(Part):
    """A pool of machines from an EC2 API with faults. Each machine is a real SSH server with an agent. The
    fault lets the API fail, and meanwhile terminates a machine.
    """

    name, fault = "ec2", "EC2 API away, a machine terminated"
    runs_again = True

    def __init__(self, machines: VirtualMachines) -> None:
        self._machines = machines

    def configure(self, system: System) -> None:
        table = self._machines.options(most=2, idle_s=5.0, interval_s=0.5, timeout_s=20.0)
        system.sections.setdefault("engines", {})["burst"] = table

    def spec(self, command: tuple[str, ...], place: Path) -> JobSpec:
        return _job(command, {"engine": "burst"}, gpus=1, on_node_lost=OnNodeLost.REQUEUE)

    def strike(self) -> None:
        cloud = self._machines.cloud
        cloud.down = {"north", "south"}
        cloud.end(cloud.alive[0])
        time.sleep(AWAY_S)
        cloud.down = set()

    def left(self) -> list[str]:
        return [each.id for each in self._machines.cloud.alive]
