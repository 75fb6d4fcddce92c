"""Starts a real SSH server for each instance of the fault cloud, on an address of the loopback interface."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncssh

from tests import processes
from tests.controller.engines.pools.fault_cloud import FaultCloud, Instance
from tests.controller.nodes.openssh_server import SETTINGS, SSHD, free_port

__all__ = ["VirtualMachines", "virtual_machines"]


class VirtualMachines:
    """The fault cloud in a thread of its own. Each instance is an SSH server with the host key of its user
    data. Agents keep their files below `spool`.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.spool = place / "machines"
        self.spool.mkdir()
        self.cloud = FaultCloud(boot=self._boot, stop=self._stop)
        self.port = free_port()
        self.identity = place / "id"
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(self.identity)
        self.identity.chmod(0o600)
        (place / "authorized_keys").write_bytes(key.export_public_key())
        self.credentials = place / "credentials"
        self.credentials.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
        self.credentials.chmod(0o600)
        self.most_at_once = 0
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def options(self, **more: object) -> dict[str, object]:
        """The table [engines.NAME] for these machines."""
        shape = {"name": "g5.large", "cpus": 8, "memory": "32G", "price": 2.0, "boot_s": 1.0}
        gpus = {"gpus": 8, "gpu_model": "H100", "gpu_memory": "80G"}
        place = {"region": "north", "zone": "north-a", "image": "ami-1"}
        return {
            "type": "ec2",
            "endpoint": self.cloud.url,
            "credentials_file": str(self.credentials),
            "places": [place, {**place, "region": "south", "zone": "south-a"}],
            "shapes": [{**shape, **gpus}],
            "identity": str(self.identity),
            "port": self.port,
            "spool": str(self.spool),
            "gpus": "simulated:8xH100",
            "run_as_self": True,
            "interval_s": 0.3,
            "demand_s": 0.5,
            "idle_s": 3.0,
            **more,
        }

    def _boot(self, instance: Instance) -> None:
        assert SSHD is not None
        here = self.place / instance.id
        here.mkdir()
        key = here / "host_key"
        key.write_text(instance.host_key)
        key.chmod(0o600)
        settings = {
            **SETTINGS,
            "ListenAddress": f"{instance.address}:{self.port}",
            "HostKey": str(key),
            "AuthorizedKeysFile": str(self.place / "authorized_keys"),
            "PermitRootLogin": "yes",
        }
        config = here / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._servers[instance.id] = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(here / "log").open("wb"),
            start_new_session=True,
        )
        self.most_at_once = max(self.most_at_once, len(self.cloud.alive) + 1)

    def _stop(self, instance: Instance) -> None:
        """Switch the machine off: no process of it is left."""
        server = self._servers.pop(instance.id, None)
        if server is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        for each in processes.of(self.spool / instance.region / instance.id):
            each.kill()

    def close(self) -> None:
        for instance in list(self.cloud.instances.values()):
            self._stop(instance)


@contextmanager
def virtual_machines(place: Path) -> Iterator[VirtualMachines]:
    """Yield the machines, with the cloud listening in a thread."""
    made = VirtualMachines(place)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.cloud.start(), loop).result(30)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.cloud.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        made.close()


def lacking() -> str:
    """Name a requirement that this machine lacks; empty if it has all."""
    if os.geteuid() != 0:
        return "SSH servers for root need root"
    return "" if shutil.which("sshd", path="/usr/sbin:/sbin") else "there is no OpenSSH server here"
